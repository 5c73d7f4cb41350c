# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real test hosts: Debian roots booted by systemd-nspawn, each with its own systemd, sshd and login user.

    python tests/hosts/hosts.py up --state DIR [--bind-ro FROM:TO]... NAME[=PORT]...
    python tests/hosts/hosts.py down --state DIR [NAME...]
    python tests/hosts/hosts.py list --state DIR [--json]
    python tests/hosts/hosts.py snapshot --state DIR NAME...

A host shares the network of this machine and listens for ssh on a loopback port of its own. Its root is an overlay
over a base that mmdebstrap makes once. The state folder holds keys, known_hosts, inventory.yml, and a folder per
host with its record and its console. Every process of a host is in a control group of that host's own, from before
the first one starts, and hosts are ended by that group: see README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

CACHE = Path(os.environ.get("INFEROPS_CACHE", "/var/cache/inferops-serving")) / "hosts"
#: The Debian releases that a host may have, and the Python of each.
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
#: That of hosts for which none is named.
SUITE = os.environ.get("INFEROPS_SUITE", "bookworm")
USER = "ops"
FIRST_PORT = 2201
LAST_PORT = 2298
BOOT_SECONDS = 60
#: For the guest to shut down by itself. One that had hardly begun to boot does not hear that it shall.
SHUTDOWN_SECONDS = 5
#: For the kernel to end what was killed, and to let go of mounts.
END_SECONDS = 20
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "python3",
    "python3-venv",
    "ca-certificates",
    "iproute2",
    "procps",
)
#: Run by a shell on this machine with the new root as ``$1``, after the packages are installed.
PREPARE = f"""
set -eu
chroot "$1" useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > "$1/etc/sudoers.d/{USER}"
chmod 0440 "$1/etc/sudoers.d/{USER}"
# .ansible is there from the beginning, so that the first task leaves no trace in the folder above it
install -d -m 0700 "$1/home/{USER}/.ssh" "$1/home/{USER}/.ansible" "$1/root/.ansible"
install -m 0600 /dev/null "$1/home/{USER}/.ssh/authorized_keys"
chroot "$1" chown --recursive {USER}:{USER} /home/{USER}
# kept over restarts, and found by journalctl --unit
install -d "$1/var/log/journal"
# the distribution's own housekeeping would write to the root in the middle of a test
chroot "$1" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \\
    e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer
# Debian 13 keeps logins with a terminal in a database too, whose journal comes and goes beside it
install -d "$1/var/lib/wtmpdb"
ln -s /var/lib/wtmpdb/wtmp.db "$1/var/log/wtmp.db"
# the host reaches what this machine reaches: same resolver, same certificates
cp --dereference /etc/resolv.conf "$1/etc/resolv.conf"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
fi
"""

#: Files that a login or the running system itself touches; a listing without them shows what a play wrote.
#: What the host mounts over its root (/proc, /sys, /dev, /run, /tmp) is not part of the root and needs no mention.
TOUCHED_BY_ITSELF = (
    f"home/{USER}/.ansible",  # Ansible's temporary folder, of any task
    "root/.ansible",  # the same, of tasks that become root
    "var/log/btmp",  # refused logins
    "var/log/journal",  # every login and every sudo is a line there
    "var/log/lastlog",  # logins with a terminal
    "var/log/wtmp",  # logins with a terminal
    "var/lib/lastlog",  # the same in Debian 13
    "var/lib/wtmpdb",  # the same in Debian 13
)

_Answer = TypeVar("_Answer")


@dataclasses.dataclass
class Record:
    """What is written down of a host before any of it exists."""

    name: str
    port: int
    binds: list[str]


class Hosts:
    """The hosts of one state folder."""

    def __init__(self, state: Path, suite: str = SUITE) -> None:
        self.state = state.resolve()
        self.suite = suite
        self.key = self.state / "id_ed25519"
        self.known_hosts = self.state / "known_hosts"
        self.inventory = self.state / "inventory.yml"

    # ---- up -----------------------------------------------------------------------------------------

    def up(self, names: dict[str, int | None], binds: tuple[str, ...] = ()) -> None:
        """Make and boot hosts, all at once; those that run already are left as they are.

        :param names: host name -> ssh port, None for the next free one.
        :param binds: FROM:TO folders of this machine, read-only in the hosts.
        :raises RuntimeError: a host did not boot. What this call started has been ended.
        :raises ValueError: a name that is not a host name.
        """
        for name in names:
            _check_name(name)
        base = make_base(self.suite)
        self.state.mkdir(parents=True, exist_ok=True)
        started = []
        # Nobody else on this machine chooses ports until ours are listened on.
        with _lock(CACHE / "boot.lock"):
            if not self.key.exists():
                _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "inferops test hosts", "-f", str(self.key))
            try:
                for name, port in names.items():
                    if self.is_running(name):
                        continue
                    self.down([name])
                    port = port or free_port({record.port for record in self.records()})
                    if not is_free(port):
                        raise RuntimeError(f"port {port} for host {name} is in use")
                    started.append(name)
                    self._boot(base, Record(name, port, list(binds)))
                for name in started:
                    self._wait_for_ssh(name)
                self._write_inventory()
            except BaseException:
                self.down(started)
                raise

    def cut_power(self, name: str) -> None:
        """Kill all of a host at once and boot it again from the root as it was left.

        :raises RuntimeError: it did not boot. It has been ended.
        """
        record = self.record(name)
        if record is None:
            raise LookupError(f"no host {name} in {self.state}")
        _kill(self._group(name))
        _remove_group(self._group(name))
        try:
            self._start(record)
            self._wait_for_ssh(name)
        except BaseException:
            self.down([name])
            raise

    def _boot(self, base: Path, record: Record) -> None:
        folder = self.state / record.name
        folder.mkdir(exist_ok=True)
        _write(folder / "record.json", json.dumps(dataclasses.asdict(record)))
        root = self.root(record.name)
        lay_root(base, root, f"inferops-{record.name}")
        self._configure(root, record)
        self._start(record)

    def _start(self, record: Record) -> None:
        root, group = self.root(record.name), self._group(record.name)
        group.mkdir()
        with (self.state / record.name / "console.log").open("ab") as console:
            subprocess.Popen(
                [
                    "systemd-nspawn",
                    "--register=no",
                    "--keep-unit",
                    "--boot",
                    "--link-journal=no",
                    f"--directory={root}",
                    f"--hostname={record.name}",
                    *(f"--bind-ro={bind}" for bind in record.binds),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _join(group),
                # needed for roots whose systemd knows only the unified hierarchy (Debian 13)
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )

    def _configure(self, root: Path, record: Record) -> None:
        (root / "etc/hostname").write_text(f"{record.name}\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {record.name}\n::1 localhost\n")
        (root / "etc/ssh/sshd_config.d/inferops.conf").write_text(
            f"Port {record.port}\nListenAddress 127.0.0.1\n"
            "PermitRootLogin no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\n"
        )
        authorized = root / f"home/{USER}/.ssh/authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        known = self.known_hosts.read_text() if self.known_hosts.exists() else ""
        _write(self.known_hosts, with_host_key(known, record.port, host_key))

    def _wait_for_ssh(self, name: str) -> None:
        def answers() -> bool:
            settled = self.run(name, f"timeout {BOOT_SECONDS // 2} systemctl is-system-running --wait")
            return settled.stdout.strip() in ("running", "degraded")

        if not _wait(answers, BOOT_SECONDS, lambda: _populated(self._group(name))):
            raise RuntimeError(f"host {name} did not boot, or does not answer by ssh:\n{self.console(name)}")

    # ---- down ---------------------------------------------------------------------------------------

    def down(self, names: list[str] | None = None) -> None:
        """End hosts, unmount and remove their roots. Right for hosts that are half made, crashed, or not there.

        :raises RuntimeError: a process or a mount of a host is still there.
        :raises ValueError: a name that is not a host name.
        """
        chosen = [_check_name(name) for name in names] if names is not None else self.names()
        for name in chosen:
            for pid in self._supervisor(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        for name in chosen:
            self._end(name)
        if self.state.exists():
            self._write_inventory()

    def _end(self, name: str) -> None:
        group = self._group(name)
        # without its systemd-nspawn the guest was not told to shut down, and there is nothing to wait for
        if not _wait(lambda: not _populated(group), SHUTDOWN_SECONDS, lambda: bool(self._supervisor(name))):
            _kill(group)
        _remove_group(group)
        if self.record(name):
            _unmount(self.root(name))
            shutil.rmtree(self.state / name)

    # ---- what there is --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Hosts with a record, running or not. Other folders in the state folder are nobody's hosts."""
        return sorted(path.parent.name for path in self.state.glob("*/record.json"))

    def records(self) -> list[Record]:
        """The records of all hosts, by name."""
        return [record for name in self.names() if (record := self.record(name))]

    def record(self, name: str) -> Record | None:
        """What is recorded of a host, None where nothing is."""
        path = self.state / name / "record.json"
        return Record(**json.loads(path.read_text())) if path.exists() else None

    def is_running(self, name: str) -> bool:
        """Whether the guest's processes are there, and the systemd-nspawn that looks after them."""
        return _populated(self._group(name) / "payload") and bool(self._supervisor(name))

    def processes(self, name: str) -> list[int]:
        """The ids of all processes of a host, its systemd-nspawn among them."""
        return [pid for part in sorted(self._group(name).rglob("cgroup.procs")) for pid in _pids(part)]

    def ssh(self, name: str, command: str) -> list[str]:
        """The ssh command line that runs a command on a host as the login user.

        :raises LookupError: there is no such host.
        """
        record = self.record(name)
        if record is None:
            raise LookupError(f"no host {name} in {self.state}")
        options = [f"UserKnownHostsFile={self.known_hosts}", "BatchMode=yes", "ConnectTimeout=5", "LogLevel=ERROR"]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", *flags, "-i", str(self.key), "-p", str(record.port), f"{USER}@127.0.0.1", command]

    def run(self, name: str, command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on a host as the login user, for ``timeout`` seconds at most."""
        return subprocess.run(self.ssh(name, command), capture_output=True, text=True, timeout=timeout, check=False)

    def console(self, name: str) -> str:
        """The last lines of a host's console."""
        path = self.state / name / "console.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-20:]) if path.exists() else ""

    def snapshot(self, name: str) -> list[str]:
        """A line ``path type mode uid gid size mtime_ns`` for all of a host's root, but for TOUCHED_BY_ITSELF."""
        return list(listing(self.root(name)))

    def root(self, name: str) -> Path:
        """The host's root as this machine sees it."""
        return self.state / name / "root"

    def _group(self, name: str) -> Path:
        """The host's control group; its name is unique on this machine and follows from where the host is."""
        return _cgroup2() / f"inferops-{hashlib.sha256(str(self.state / name).encode()).hexdigest()[:16]}"

    def _supervisor(self, name: str) -> list[int]:
        """The systemd-nspawn of a host: first in the host's group, then in a part of it that it makes for itself."""
        group = self._group(name)
        return _pids(group / "cgroup.procs") + _pids(group / "supervisor/cgroup.procs")

    def _write_inventory(self) -> None:
        hosts = {
            record.name: {
                "ansible_host": "127.0.0.1",
                "ansible_port": record.port,
                "ansible_user": USER,
                "ansible_become": True,
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_private_key_file": str(self.key),
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
            }
            for record in self.records()
        }
        # JSON is YAML too, and needs no library
        _write(self.inventory, json.dumps({"all": {"hosts": hosts}}, indent=2) + "\n")


# ---- roots --------------------------------------------------------------------------------------------


def recipe_digest(suite: str) -> str:
    """12 hex digits that change with everything that goes into a base root."""
    return hashlib.sha256("\n".join((suite, *PACKAGES, PREPARE)).encode()).hexdigest()[:12]


def make_base(suite: str) -> Path:
    """The root that hosts are laid over, made once for each recipe. Concurrent calls wait for each other.

    :raises RuntimeError: mmdebstrap failed; its words are in the text.
    """
    base = CACHE / f"{suite}-{recipe_digest(suite)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock(CACHE / "lock"):
        if not base.exists():
            print(f"making a Debian {suite} root in {base}", file=sys.stderr, flush=True)
            building = CACHE / f"{base.name}.building"
            if building.exists():
                shutil.rmtree(building)
            _run(
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                '--aptopt=Acquire::Languages "none"',
                f"--customize-hook={PREPARE}",
                suite,
                str(building),
            )
            building.rename(base)
    return base


def lay_root(base: Path, root: Path, label: str) -> None:
    """Make ``root`` a writable root with the content of ``base``.

    An overlay mount named ``label``, or a copy where the file system below cannot carry an overlay (another overlay,
    as in most containers).

    :raises FileExistsError: there is something at ``root``.
    :raises RuntimeError: neither was possible.
    """
    upper, work = root.parent / "upper", root.parent / "work"
    for part in (root, upper, work):
        part.mkdir()
    try:
        _run(
            *("mount", "-t", "overlay", label),
            *("-o", f"lowerdir={base},upperdir={upper},workdir={work}", str(root)),
        )
    except RuntimeError as overlay:
        try:
            _run("cp", "--archive", "--reflink=auto", f"{base}/.", str(root))
        except RuntimeError as copy:
            raise RuntimeError(f"{overlay}\n{copy}") from copy


def listing(root: Path) -> Iterator[str]:
    """A line ``path type mode uid gid size mtime_ns`` for everything below ``root``, but for TOUCHED_BY_ITSELF.

    Folder by folder, by name within each. The size of a folder is given as 0: it tells nothing, and differs between
    file systems.
    """
    for folder, folders, files in os.walk(root):
        relative = Path(folder).relative_to(root)
        folders[:] = sorted(one for one in folders if str(relative / one) not in TOUCHED_BY_ITSELF)
        for one in sorted([*folders, *files]):
            path = relative / one
            if str(path) not in TOUCHED_BY_ITSELF:
                status = os.lstat(root / path)
                kind = stat.filemode(status.st_mode)[0]
                size = 0 if kind == "d" else status.st_size
                yield (
                    f"{path} {kind} {stat.S_IMODE(status.st_mode):04o} {status.st_uid} {status.st_gid} "
                    f"{size} {status.st_mtime_ns}"
                )


def _unmount(root: Path) -> None:
    if os.path.ismount(root):
        # mounts of the guest below its root go with its namespace, a moment after its last process
        def unmounted() -> bool:
            return subprocess.run(["umount", str(root)], capture_output=True, check=False).returncode == 0

        if not _wait(unmounted, END_SECONDS):
            _run("umount", "--lazy", str(root))


# ---- control groups -----------------------------------------------------------------------------------
# systemd in a guest takes every process in its group for its own. Without a group for each host, systemd-nspawn puts
# all guests into one, where units of the same name get into each other's way.


def _cgroup_mounts(kinds: tuple[str, ...]) -> list[Path]:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [Path(mount[1]) for mount in mounts if mount[2] in kinds]


def _cgroup2() -> Path:
    """Where the unified hierarchy is: /sys/fs/cgroup, or below that on machines that have both."""
    mounts = _cgroup_mounts(("cgroup2",))
    if not mounts:
        raise RuntimeError("test hosts need control groups of version 2; this machine has none mounted")
    return mounts[0]


def _join(group: Path) -> None:
    """Put the calling process into a group."""
    (group / "cgroup.procs").write_text("0")


def _pids(procs: Path) -> list[int]:
    try:
        return [int(word) for word in procs.read_text().split()]
    except OSError:  # the group is not there, or was removed under our hands
        return []


def _populated(group: Path) -> bool:
    """Whether there is a process in a group or below it."""
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:  # as above
        return False


def _kill(group: Path) -> None:
    """Kill every process in a group and below it, in one step of the kernel."""
    with contextlib.suppress(FileNotFoundError):
        (group / "cgroup.kill").write_text("1")
    if not _wait(lambda: not _populated(group), END_SECONDS):
        raise RuntimeError(f"processes in {group} do not end")


def _remove_group(group: Path) -> None:
    """Remove an empty group, and its shadows in hierarchies of version 1 that systemd-nspawn makes.

    A process may still join that an `up` had begun which was killed a moment ago. It is killed too.

    :raises RuntimeError: something still keeps the group.
    """
    if not _wait(lambda: _is_removed(group), END_SECONDS):
        raise RuntimeError(f"{group} cannot be removed")


def _is_removed(group: Path) -> bool:
    try:
        for mount in _cgroup_mounts(("cgroup2", "cgroup")):
            for folder, _folders, _files in os.walk(mount / group.name, topdown=False):
                os.rmdir(folder)
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise
        _kill(group)
        return False
    return True


# ---- small things ---------------------------------------------------------------------------------------


def start_time(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot, None for one that is not there or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def with_host_key(known_hosts: str, port: int, host_key: str) -> str:
    """The text of a known_hosts file in which the host at a loopback port has this key and no other."""
    address = f"[127.0.0.1]:{port}"
    kept = [line for line in known_hosts.splitlines() if not line.startswith(f"{address} ")]
    kind, key = host_key.split()[:2]
    return "\n".join([*kept, f"{address} {kind} {key}"]) + "\n"


def is_free(port: int) -> bool:
    """Whether nothing listens on a loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(taken: set[int]) -> int:
    """The first port from FIRST_PORT to LAST_PORT that nothing listens on and that is not in ``taken``.

    :raises RuntimeError: there is none.
    """
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if port not in taken and is_free(port):
            return port
    raise RuntimeError(f"no free port from {FIRST_PORT} to {LAST_PORT}")


def named_ports(words: list[str]) -> dict[str, int | None]:
    """``["a", "b=2210"]`` -> ``{"a": None, "b": 2210}``.

    :raises ValueError: a port that is not a number.
    """
    pairs = (word.partition("=") for word in words)
    return {name: int(port) if equals else None for name, equals, port in pairs}


def _check_name(name: str) -> str:
    # names become parts of paths that are removed
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
        raise ValueError(f"{name!r} is not a host name: lower case letters, digits and hyphens")
    return name


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")


def _wait(
    question: Callable[[], _Answer], seconds: float, goes_on: Callable[[], bool] = lambda: True
) -> _Answer | None:
    """Ask until the answer is a true one, the time is over, or ``goes_on`` says no."""
    end = time.monotonic() + seconds
    while True:
        # in this order, so that the last question is asked after the end
        last = time.monotonic() >= end or not goes_on()
        answer = question()
        if answer or last:
            return answer or None
        time.sleep(0.1)


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".new")
    partial.write_text(text)
    partial.rename(path)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _list(hosts: Hosts, as_json: bool) -> None:
    found = [{**dataclasses.asdict(record), "running": hosts.is_running(record.name)} for record in hosts.records()]
    if as_json:
        print(json.dumps(found))
        return
    for host in found:
        print(f"{host['name']} {'runs' if host['running'] else 'does not run'}, ssh port {host['port']}")


def main(words: list[str]) -> int:
    """The command line; see the top of this file. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["up", "down", "list", "snapshot"])
    parser.add_argument("--state", type=Path, required=True, help="the folder that holds everything about the hosts")
    parser.add_argument("--suite", default=SUITE, choices=list(SUITES), help="the Debian release")
    parser.add_argument("--bind-ro", action="append", default=[], metavar="FROM:TO", help="a folder to show the hosts")
    parser.add_argument("--json", action="store_true", help="list as JSON")
    parser.add_argument("names", nargs="*", metavar="NAME[=PORT]")
    options = parser.parse_intermixed_args(words)
    if os.geteuid() != 0:
        parser.error("test hosts need root: they are made of mounts and namespaces")
    hosts = Hosts(options.state, options.suite)
    try:
        if options.command == "up":
            hosts.up(named_ports(options.names), tuple(options.bind_ro))
            print(hosts.inventory.read_text(), end="")
        elif options.command == "down":
            hosts.down(options.names or None)
        elif options.command == "snapshot":
            for name in options.names:
                print("\n".join(hosts.snapshot(name)))
        else:
            _list(hosts, options.json)
    except (RuntimeError, LookupError, ValueError) as problem:
        print(f"hosts: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
