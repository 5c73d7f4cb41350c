# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A task in a transient systemd unit, which outlives the connection that asked for it.

The unit's folder, for root only and gone with the next boot; beside it a file that who starts it has locked::

    /run/model-snapshot/<key>/
        code             this package: the archive that Ansible sent, or a link to where it lies
        job.json         the options, and the variables that say how to reach a source; gone once read
        progress.json    how far it is, anew every second
        result.json      the task's result, once it has ended; stays until the next start, since several runs may wait

The key is made of the store and the lock, so asking for the same again finds the unit that is at it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import remove, replace_text
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore
from ansible_collections.inferops.serving.plugins.module_utils._store.task import Params, Result, Task

JOBS = "/run/model-snapshot"
# without the site's own start-up code: the archive that Ansible sends has a piece of it that is none
_PYTHON = (sys.executable, "-S")
_BOOTED_BY_SYSTEMD = "/run/systemd/system"
_PACKAGES_ABOVE = 7
_LOOK_EVERY = 0.2
_ASK_SYSTEMD_EVERY = 1.0
_REPORT_EVERY = 1.0
_MOST_WORDS = 20
#: What a source may need of the environment besides the options.
_ENVIRONMENT = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")

#: Runs a command; gives its exit status, its output and what it said of errors.
Run = t.Callable[[list[str]], tuple[int, str, str]]


class JobFailed(Exception):
    """The unit could not be started, or ended without a result. The text says why."""


def is_possible() -> bool:
    """Whether this process may start units of a running systemd."""
    return os.path.isdir(_BOOTED_BY_SYSTEMD) and os.geteuid() == 0 and shutil.which("systemd-run") is not None


class Job:
    """The unit for one store and one lock.

    :param lock_digest: sha256 of the lock in canonical form.
    """

    def __init__(self, run: Run, store: str, lock_digest: str, jobs: str = JOBS) -> None:
        self._run = run
        self._made = time.time()
        key = hashlib.sha256(f"{store}\n{lock_digest}".encode()).hexdigest()[:12]
        self.unit = f"model-snapshot-{key}.service"
        self.folder = os.path.join(jobs, key)

    def is_running(self) -> bool:
        """Whether the unit is at work."""
        _status, state, _errors = self._run(["systemctl", "is-active", self.unit])
        return state.strip() in ("active", "activating", "deactivating", "reloading")

    def start(self, params: Params, description: str) -> None:
        """Start the unit, unless it is at work, or was and ended since this was made: others may ask for the same.

        :raises JobFailed: systemd does not start it.
        """
        with self._alone():
            if not self.is_running() and not self._has_ended_since():
                self._start(params, description)

    def _start(self, params: Params, description: str) -> None:
        remove(self.folder)
        os.mkdir(self.folder, 0o700)
        code = os.path.join(self.folder, "code")
        _bring_code(code)
        names = [name for name in os.environ if name in _ENVIRONMENT or name.lower() in _ENVIRONMENT]
        environment = {name: os.environ[name] for name in names}
        # for root only, as the folder is: a proxy's address may hold a password
        replace_text(self._path("job"), json.dumps({"params": dict(params), "environment": environment}))
        command = ["systemd-run", f"--unit={self.unit}", f"--description={description}", "--collect", "--quiet"]
        command += ["--property=Type=exec", f"--setenv=PYTHONPATH={code}", "--setenv=PYTHONDONTWRITEBYTECODE=1", "--"]
        status, _output, errors = self._run([*command, *_PYTHON, "-m", __name__, self.folder])
        if status != 0:
            raise JobFailed(f"systemd does not start {self.unit}: {errors.strip()}")

    def wait(self, seconds: float) -> bool:
        """Wait for the unit's end, at most so long. Returns whether it has ended."""
        end = time.monotonic() + seconds
        ask_at = 0.0
        while not os.path.exists(self._path("result")):
            now = time.monotonic()
            if now >= ask_at:
                ask_at = now + _ASK_SYSTEMD_EVERY
                if not self.is_running():
                    # somebody may be starting it anew
                    with self._alone():
                        if not self.is_running():
                            return True
            if now >= end:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def progress(self) -> dict[str, t.Any]:
        """How far it is: bytes_done, bytes_total, bytes_hashed, seconds. Empty before the first report."""
        return _read(self._path("progress")) or {}

    def result(self) -> Result:
        """The task's result, once the unit has ended.

        :raises JobFailed: the unit was ended from outside.
        """
        result = _read(self._path("result"))
        if result is None:
            said = self._run(["journalctl", "--quiet", "--no-pager", f"--lines={_MOST_WORDS}", f"--unit={self.unit}"])[
                1
            ]
            raise JobFailed(f"{self.unit} ended without a result. Its journal ends with:\n{said.strip()}")
        return result

    @contextlib.contextmanager
    def _alone(self) -> t.Iterator[None]:
        """Not while another process starts the same unit: two hosts of the inventory may be one machine."""
        os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
        with open(f"{self.folder}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _has_ended_since(self) -> bool:
        """Whether there is a result that came after this was made."""
        try:
            return os.stat(self._path("result")).st_mtime >= self._made
        except FileNotFoundError:
            return False

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, f"{name}.json")


def _bring_code(place: str) -> None:
    """Put this package where the unit finds it after the connection, and what Ansible sent with it, is gone."""
    archive = getattr(__spec__.loader, "archive", None)
    if archive is not None:
        shutil.copyfile(archive, place)
        return
    root = os.path.abspath(__file__)
    for _level in range(_PACKAGES_ABOVE):
        root = os.path.dirname(root)
    os.symlink(root, place)


def _read(path: str) -> dict[str, t.Any] | None:
    try:
        with open(path, encoding="utf-8") as stream:
            found: dict[str, t.Any] = json.load(stream)
    except FileNotFoundError:
        return None
    return found


# ---- inside the unit ------------------------------------------------------------------------------


def work(folder: str) -> int:
    """Do the job of a folder. Returns the exit status."""
    path = os.path.join(folder, "job.json")
    with open(path, encoding="utf-8") as stream:
        job = json.load(stream)
    remove(path)
    os.environ.update(job["environment"])
    task = Task(job["params"], parse_lock(job["params"]["lock"]), False, lambda _secret: None)
    with _reporting(task.store, os.path.join(folder, "progress.json")):
        result = task.run()
    replace_text(os.path.join(folder, "result.json"), json.dumps(result))
    sys.stdout.write(f"{result['msg']}\n")
    return 1 if result["failed"] else 0


@contextlib.contextmanager
def _reporting(store: ModelStore, path: str) -> t.Iterator[None]:
    """Write down how far it is, every second."""
    ended = threading.Event()
    begin = time.monotonic()

    def report() -> None:
        while not ended.wait(_REPORT_EVERY):
            progress = {
                "bytes_done": store.tally.bytes_fetched,
                "bytes_total": store.found.bytes_to_fetch if store.found is not None else None,
                "bytes_hashed": store.tally.bytes_hashed,
                "seconds": round(time.monotonic() - begin, 1),
            }
            replace_text(path, json.dumps(progress))

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    raise SystemExit(work(sys.argv[1]))
