# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A source that is many hosts: aria2 fetches the torrent of a lock from a mirror and from the other fetching hosts.

aria2 brings bytes and is not believed: what it has written is proved like the bytes of any other source. Everything
that a store lacks comes in one go, into a folder of the model's directory, and each file is then moved, not copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import shutil
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store import torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import part_size
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import (
    ModelDir,
    file_status,
    is_regular,
    make_directory,
    remove,
    replace_text,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally
from ansible_collections.inferops.serving.plugins.module_utils._store.transport import (
    USER_AGENT,
    WORTH_ANOTHER_TRY,
    OriginKeepingRedirects,
    Retryable,
    check_address,
    class_of_status,
    describe_break,
    describe_refusal,
)

ARIA2 = "aria2c"
PACKAGE = "aria2"
# Nobody outside the site is told or asked: a private torrent forbids it, and so do we.
_PRIVATE = (
    "--no-conf=true",
    "--enable-dht=false",
    "--enable-dht6=false",
    "--bt-enable-lpd=false",
    "--enable-peer-exchange=false",
)
_QUIET = ("--console-log-level=warn", "--summary-interval=0", "--show-console-readout=false", "--download-result=hide")
# Hosts that begin together find each other at the second announcement.
_ANNOUNCE_SECONDS = 5
_LARGEST_METAINFO = 16 << 20
_POLL_SECONDS = 0.2
# aria2 says goodbye to the tracker before it ends.
_GOODBYE_SECONDS = 10.0
# That of a killed run notices within seconds, and says goodbye as well.
_LEFTOVER_SECONDS = 30.0
# Bytes per second that reading staged files again takes at worst.
_SLOWEST_CHECK = 20 << 20
_EXIT_NO_SPACE = 9
_LONGEST_LOG = 2000
_DONE = "done"


@dataclass(frozen=True)
class Swarming:
    """How a host takes part.

    :param ports: TCP ports to listen on for the other hosts, one or a range; the first free one is taken.
    :param upload_limit: bytes per second for the other hosts; 0 for no limit.
    :param seed_seconds: how long to serve the others once everything is published, at most; 0 for not at all.
    """

    ports: str = "6881-6889"
    upload_limit: int = 0
    seed_seconds: int = 300


class SwarmSource:
    """The torrent that a mirror offers for a lock at ``<url>/torrents/<lock digest>.torrent``.

    :param url: address of the mirror, http or https.
    :param stall_timeout: seconds without a further proved piece after which the swarm counts as dead.
    """

    def __init__(self, url: str, lock: ModelLock, swarming: Swarming, stall_timeout: float, tally: Tally) -> None:
        self._url = url.rstrip("/")
        # the mirror's files may be a source too
        self.name = f"{self._url} (torrent)"
        self._lock = lock
        self._swarming = swarming
        self._stall_timeout = stall_timeout
        self._tally = tally
        self._guard = threading.Lock()
        self._staging: _Staging | None = None
        self._metainfo = b""
        self._failure: StoreError | None = None

    def locate(self, blob: Blob) -> str:
        return f"{self._address} ({blob.path})"

    @property
    def _address(self) -> str:
        return f"{self._url}/torrents/{self._lock.digest}.torrent"

    @property
    def failed(self) -> bool:
        """Whether the transfer did not bring everything."""
        return self._failure is not None

    def take(self, blob: Blob, model: ModelDir, stop: threading.Event) -> str:
        """The path of a whole file, which is the caller's to move. The first call brings everything that is missing.

        :param model: what it is missing from.
        :param stop: ends a transfer early; what it has brought is taken up by the next run.
        :raises Retryable: the failure may pass.
        :raises StoreError: this source will not serve this file.
        """
        with self._guard:
            if self._failure is not None:
                raise self._failure
            if self._staging is None:
                try:
                    self._bring(model, stop)
                except StoreError as error:
                    self._failure = error
                    raise
            staging = t.cast("_Staging", self._staging)
        path = staging.place(blob)
        if not _is_whole(path, blob):
            raise self._error("not_found", f"{self.locate(blob)} did not come.", file=blob.path)
        return path

    def leave(self, blob: Blob, model: ModelDir) -> str | None:
        """Free what a transfer that failed holds of a file, because another source brings it now.

        :returns: the path of the file's beginning, up to the first piece that did not come, which is the caller's to
            move; None when there is none.
        """
        with self._guard:
            if self._staging is None:
                # what an earlier run has left here, and this one could not take up
                remove(model.swarm)
                return None
            return self._staging.cut(blob)

    def seed(self, model: ModelDir) -> None:
        """Let this host serve the others for a while, from the published revision.

        A transient unit does it and outlives the module. Without systemd, and without the right to start a unit, there
        is none: a host then has served while it fetched.
        """
        if not self._metainfo or not self._swarming.seed_seconds or not os.path.isdir("/run/systemd/system"):
            return
        unit = f"sglang-seed-{self._lock.digest[:12]}"
        place = f"/run/{unit}.torrent"
        # the model is here and proved, whether or not others get it from here
        with contextlib.suppress(OSError):
            with open(place, "wb") as stream:
                stream.write(self._metainfo)
            os.chmod(place, 0o644)
            command = seed_unit(unit, place, model, self._swarming)
            # runs in the unit of a transfer, where there is no module and so no run_command
            subprocess.run(  # pylint: disable=ansible-bad-function
                command, check=False, stdin=subprocess.DEVNULL, capture_output=True
            )

    def _bring(self, model: ModelDir, stop: threading.Event) -> None:
        """Have everything staged that a model's directory lacks."""
        aria2 = shutil.which(ARIA2)
        if aria2 is None:
            raise StoreError(
                "not_found",
                f"A torrent source needs {ARIA2}, and this host has none.",
                f"Install the Debian package {PACKAGE}, or name another source.",
                source=self.name,
            )
        data = self._fetch_metainfo()
        try:
            said = torrent.read_metainfo(self._lock, data)
            check_address(said.announce)
            check_address(said.web_seed)
        except (StoreError, ValueError) as error:
            raise self._error(
                "corrupt_source",
                f"{self._address} was refused: {error}.",
                "Let the role sglang_mirror make it again, from this lock.",
            ) from error
        staging = _Staging(model, self._lock, torrent.info_hash(self._lock, said.pieces), data)
        wanted = [
            blob
            for blob in torrent.shared_files(self._lock)
            if not os.path.exists(model.blob(blob.sha256)) and part_size(model, blob) < blob.size
        ]
        with staging.alone() as descriptor:
            if descriptor is None:
                raise self._error("locked", f"An aria2 of an earlier run still writes to {staging.folder}.")
            self._staging = staging
            if not staging.holds(wanted):
                self._fetch(aria2, staging, wanted, descriptor, stop)
        self._metainfo = data

    def _fetch_metainfo(self) -> bytes:
        request = urllib.request.Request(self._address, headers={"User-Agent": USER_AGENT})
        opener = urllib.request.build_opener(OriginKeepingRedirects(self._tally))
        self._tally.requested()
        try:
            with opener.open(request, timeout=self._stall_timeout) as response:
                data = bytes(response.read(_LARGEST_METAINFO))
                # what is still to come of an answer that was not read to its end
                if response.length and len(data) < _LARGEST_METAINFO:
                    raise http.client.IncompleteRead(data, response.length)
                return data
        except urllib.error.HTTPError as answer:
            with answer:
                said, wait = describe_refusal(self._address, answer)
                remedy = "Check the source's address, and that the mirror has sglang_mirror_torrent and this lock."
                error = self._error(class_of_status(answer.code), said, remedy, status=answer.code)
                raise (Retryable(error, wait) if answer.code in WORTH_ANOTHER_TRY else error) from answer
        except (OSError, http.client.HTTPException) as broken:
            detail, may_pass = describe_break(broken, self._stall_timeout)
            error = self._error("network", f"{self._address} could not be read: {detail}.")
            raise (Retryable(error) if may_pass else error) from broken

    def _fetch(
        self, aria2: str, staging: _Staging, wanted: t.Sequence[Blob], descriptor: int, stop: threading.Event
    ) -> None:
        """Run aria2 until it has everything.

        :raises StoreError: it failed, stalled, or was stopped.
        """
        before = {blob: staging.allocated(blob) for blob in wanted}
        for blob in wanted:
            self._tally.resumed(blob.path, before[blob])
        command = [aria2, *self._arguments(), *staging.arguments(wanted)]
        staging.begin()
        try:
            with open(staging.log, "wb") as log:
                # watched while it runs, and given a descriptor; run_command does neither
                child = subprocess.Popen(  # pylint: disable=ansible-bad-function
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[descriptor]
                )
            try:
                stalled = self._watch(child, staging, sum(before.values()), stop)
            finally:
                _end(child)
        finally:
            for blob in wanted:
                self._tally.fetched(max(0, staging.allocated(blob) - before[blob]))
        if stalled:
            raise self._error("network", f"{self._address} {stalled}.")
        if child.returncode != 0:
            staging.distrust()
        if child.returncode == _EXIT_NO_SPACE:
            raise self._error("no_space", f"The file system of {staging.folder} became full.", "Free some space.")
        if child.returncode != 0:
            raise self._error(
                "network", f"{self._address}: aria2 ended with status {child.returncode}: {_tail(staging.log)}."
            )
        staging.finish()

    def _arguments(self) -> list[str]:
        return [
            *_PRIVATE,
            *_QUIET,
            # kill -9 of this process leaves no aria2 behind
            f"--stop-with-process={os.getpid()}",
            f"--listen-port={self._swarming.ports}",
            f"--max-overall-upload-limit={self._swarming.upload_limit}",
            f"--bt-tracker-interval={_ANNOUNCE_SECONDS}",
            "--bt-tracker-connect-timeout=10",
            "--bt-tracker-timeout=10",
            "--seed-time=0",
            "--file-allocation=none",
            "--auto-save-interval=1",
            # a silent web seed is asked again before the swarm counts as dead
            f"--timeout={max(1, min(60, int(self._stall_timeout / 3)))}",
            "--max-tries=0",
            "--retry-wait=1",
            "--stream-piece-selector=random",
        ]

    def _watch(self, child: subprocess.Popen[bytes], staging: _Staging, staged: int, stop: threading.Event) -> str:
        """Wait for aria2 to end. Returns why it should not go on, in words, when it did not."""
        most = 0
        deadline = time.monotonic() + self._stall_timeout + staged / _SLOWEST_CHECK
        while child.poll() is None:
            if stop.wait(_POLL_SECONDS):
                return "was left because another file failed"
            proved = staging.proved_pieces()
            if proved > most:
                most, deadline = proved, time.monotonic() + self._stall_timeout
            if time.monotonic() > deadline:
                return f"brought no further good piece in {self._stall_timeout:g} s: {_tail(staging.log)}"
        return ""

    def _error(
        self, error_class: t.Any, problem: str, remedy: str = "Check the mirror and its tracker.", **facts: t.Any
    ) -> StoreError:
        return StoreError(error_class, problem, remedy, source=self.name, **facts)


class _Staging:
    """The folder that aria2 writes to, one for each torrent. What other torrents have left goes."""

    def __init__(self, model: ModelDir, lock: ModelLock, info_hash: str, metainfo: bytes) -> None:
        self.folder = os.path.join(model.swarm, info_hash)
        self.log = os.path.join(self.folder, "log")
        self._lock = lock
        self._files = os.path.join(self.folder, lock.revision)
        self._control = self._files + ".aria2"
        self._torrent = os.path.join(self.folder, "torrent")
        self._done = os.path.join(self.folder, _DONE)
        self._good: bytes | None = None
        make_directory(self.folder)
        for name in os.listdir(model.swarm):
            if name != info_hash:
                remove(os.path.join(model.swarm, name))
        with open(self._torrent, "wb") as stream:
            stream.write(metainfo)

    @contextlib.contextmanager
    def alone(self) -> t.Iterator[int | None]:
        """Be the only one here. Gives a descriptor for aria2 to inherit, which holds the claim as long as that runs;
        None when another one does not end."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            deadline = time.monotonic() + _LEFTOVER_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield None
                        return
                    time.sleep(_POLL_SECONDS)
            yield descriptor
        finally:
            os.close(descriptor)

    def place(self, blob: Blob) -> str:
        return os.path.join(self._files, blob.path)

    def holds(self, wanted: t.Sequence[Blob]) -> bool:
        """Whether an earlier run had everything here."""
        return os.path.exists(self._done) and all(_is_whole(self.place(blob), blob) for blob in wanted)

    def allocated(self, blob: Blob) -> int:
        """Bytes of a file that are on disk; its length tells nothing, since pieces come in any order."""
        status = file_status(self.place(blob))
        return min(blob.size, status.st_blocks * 512) if status is not None and is_regular(status) else 0

    def arguments(self, wanted: t.Sequence[Blob]) -> list[str]:
        """What to fetch, and from where to go on. aria2's own record says which pieces are here.

        Once files have been moved away there is no such record, and it reads what is left.
        """
        numbers = [str(number) for number, blob in enumerate(torrent.shared_files(self._lock), 1) if blob in wanted]
        anew = os.path.exists(self._files) and not os.path.exists(self._control)
        return [
            f"--check-integrity={'true' if anew else 'false'}",
            f"--select-file={','.join(numbers)}",
            f"--dir={self.folder}",
            self._torrent,
        ]

    def begin(self) -> None:
        remove(self._done)

    def finish(self) -> None:
        """Everything is here: the record would speak of files that are moved away from now on."""
        replace_text(self._done, "")
        remove(self._control)

    def distrust(self) -> None:
        """Let the next aria2 read what is here: a record written to a full disk is damaged, and aria2 stops at it."""
        remove(self._control)

    def proved_pieces(self) -> int:
        """How many pieces aria2 has found good."""
        return bin(int.from_bytes(self._good_pieces(), "big")).count("1")

    def cut(self, blob: Blob) -> str | None:
        """Shorten a file to the good pieces that it begins with. None when it begins with none: it is removed."""
        if self._good is None:
            # the record would speak of files that are moved away from now on
            self._good = self._good_pieces()
            remove(self._control)
            remove(self._done)
        place = self.place(blob)
        length = torrent.good_beginning(self._lock, blob, self._good)
        status = file_status(place)
        if status is None or not is_regular(status) or not 0 < length <= status.st_size:
            remove(place)
            return None
        os.truncate(place, length)
        return place

    def _good_pieces(self) -> bytes:
        """The record of aria2: after a header, one bit for each piece. Empty when there is none."""
        try:
            with open(self._control, "rb") as stream:
                record = stream.read()
        except FileNotFoundError:
            return b""
        # version 2 bytes, extension 4, length of the info hash 4 and itself, piece length 4, total 8, uploaded 8
        start = 10 + int.from_bytes(record[6:10], "big") + 20
        size = int.from_bytes(record[start : start + 4], "big")
        return record[start + 4 : start + 4 + size]


def seed_unit(unit: str, metainfo: str, model: ModelDir, swarming: Swarming) -> list[str]:
    """The command that starts a unit which serves a published revision for a while and then is gone.

    It runs as a user of its own that can write nothing, and ends sooner when it has given as many bytes as there are.

    :param metainfo: the torrent file, which the unit removes.
    """
    properties = {
        "Description": "Serves a model to the hosts that fetch it",
        "DynamicUser": "yes",
        "ExecStopPost": f"+/bin/rm -f {metainfo}",
        "RuntimeMaxSec": f"{swarming.seed_seconds + 60}",
        "Nice": "10",
        "IOSchedulingClass": "idle",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "PrivateDevices": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "read-only",
        "ProtectKernelTunables": "yes",
        "ProtectKernelModules": "yes",
        "ProtectControlGroups": "yes",
        "ProtectKernelLogs": "yes",
        "ProtectClock": "yes",
        "ProtectHostname": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        "RestrictNamespaces": "yes",
        "RestrictRealtime": "yes",
        "LockPersonality": "yes",
        "MemoryDenyWriteExecute": "yes",
        "SystemCallArchitectures": "native",
    }
    options = [f"--property={name}={value}" for name, value in properties.items()]
    return [
        "systemd-run",
        f"--unit={unit}",
        "--collect",
        "--quiet",
        *options,
        "--",
        *seed_command(metainfo, model, swarming),
    ]


def seed_command(metainfo: str, model: ModelDir, swarming: Swarming) -> list[str]:
    """aria2 as a seeder of a published revision; it opens the files for reading only and writes nothing."""
    return [
        shutil.which(ARIA2) or ARIA2,
        *_PRIVATE,
        *_QUIET,
        f"--listen-port={swarming.ports}",
        f"--max-overall-upload-limit={swarming.upload_limit}",
        f"--seed-time={swarming.seed_seconds / 60:.2f}",
        "--seed-ratio=1.0",
        "--bt-seed-unverified=true",
        "--auto-save-interval=0",
        f"--dir={model.snapshots}",
        metainfo,
    ]


def _is_whole(path: str, blob: Blob) -> bool:
    status = file_status(path)
    return status is not None and is_regular(status) and status.st_size == blob.size


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let aria2 write its record and end, and end it if it does not."""
    child.terminate()
    try:
        child.wait(_GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _tail(log: str) -> str:
    """The last error that aria2 wrote, on one line."""
    with open(log, encoding="utf-8", errors="replace") as stream:
        lines = [line.strip() for line in stream.read()[-_LONGEST_LOG:].splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if line.startswith("Exception")), lines[-1] if lines else "no message"
    )
