# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real test hosts: Debian roots booted by systemd-nspawn, each with its own systemd, sshd and login user.

    python tests/hosts/hosts.py up --state DIR [--bind-ro FROM:TO]... NAME[=PORT]...
    python tests/hosts/hosts.py down --state DIR [NAME...]
    python tests/hosts/hosts.py list --state DIR
    python tests/hosts/hosts.py snapshot --state DIR NAME

A host shares the network of this machine and listens for ssh on a loopback port of its own. Its root is an overlay
over a base that mmdebstrap makes once. The state folder holds keys, known_hosts, inventory.yml, and a folder per
host with its record and its console. Hosts are ended by the process ids in their records, never by a name.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import yaml

CACHE = Path(os.environ.get("INFEROPS_CACHE", "/var/cache/inferops-serving")) / "hosts"
USER = "ops"
FIRST_PORT = 2201
BOOT_SECONDS = 60
STOP_SECONDS = 20
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
_Answer = TypeVar("_Answer")

#: Files that a login or the running system itself touches; a listing without them shows what a play wrote.
TOUCHED_BY_ITSELF = (
    "dev",  # the root's own, hidden below the guest's device file system
    f"home/{USER}/.ansible",  # Ansible's temporary folders, made by any task
    "root/.ansible",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/lib/systemd/linger",
    "var/lib/systemd/random-seed",
    "var/lib/systemd/timers",  # stamps of the distribution's own timers
    "var/log/btmp",
    "var/log/journal",
    "var/log/lastlog",
    "var/log/wtmp",  # logins
    "var/tmp",
)


@dataclasses.dataclass
class Record:
    """A running host. Process ids count only together with the time at which the process started."""

    name: str
    port: int
    processes: list[tuple[int, str]]


class Hosts:
    """The hosts of one state folder."""

    def __init__(self, state: Path, suite: str = "bookworm") -> None:
        self.state = state.resolve()
        self.suite = suite
        self.key = self.state / "id_ed25519"
        self.known_hosts = self.state / "known_hosts"
        self.inventory = self.state / "inventory.yml"

    # ---- up -----------------------------------------------------------------------------------------

    def up(self, names: dict[str, int | None], binds: tuple[str, ...] = ()) -> None:
        """Make and boot hosts; those that run already are left as they are.

        :param names: host name -> ssh port, None for the next free one.
        :param binds: FROM:TO folders of this machine, read-only in the hosts.
        :raises RuntimeError: a host did not boot. What this call started has been ended.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        base = make_base(self.suite)
        if not self.key.exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "inferops test hosts", "-f", str(self.key))
        started = []
        try:
            for name, port in names.items():
                if self.is_running(name):
                    continue
                self.down([name])
                started.append(name)
                self._boot(base, name, port or self._free_port(), binds)
            self._write_inventory()
            for name in started:
                self._wait_for_ssh(name)
        except BaseException:
            self.down(started)
            raise

    def _boot(self, base: Path, name: str, port: int, binds: tuple[str, ...]) -> None:
        if not _is_free(port):
            raise RuntimeError(f"port {port} for host {name} is in use")
        folder = self.state / name
        root = self.root(name)
        for part in (root, folder / "upper", folder / "work"):
            part.mkdir(parents=True)
        options = f"lowerdir={base},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        _run("mount", "-t", "overlay", f"inferops-{name}", "-o", options, str(root))
        self._configure(root, name, port)
        record = Record(name, port, [])
        with (folder / "console.log").open("wb") as console:
            process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    "--register=no",
                    "--keep-unit",
                    "--boot",
                    "--link-journal=no",
                    f"--directory={root}",
                    f"--hostname={name}",
                    *(f"--bind-ro={bind}" for bind in binds),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # needed for roots whose systemd knows only the unified hierarchy (Debian 13)
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
        self._note(record, process.pid)
        init = _wait(lambda: next(iter(_children(process.pid)), 0), BOOT_SECONDS, lambda: process.poll() is None)
        if not init:
            raise RuntimeError(f"host {name} did not start:\n{self.console(name)}")
        # the guest's first process outlives a killed systemd-nspawn, so it is recorded as well
        self._note(record, init)

    def _configure(self, root: Path, name: str, port: int) -> None:
        (root / "etc/hostname").write_text(f"{name}\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n")
        (root / "etc/ssh/sshd_config.d/inferops.conf").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nPermitRootLogin no\nPasswordAuthentication no\nUseDNS no\n"
        )
        authorized = root / f"home/{USER}/.ssh/authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        lines = self.known_hosts.read_text().splitlines() if self.known_hosts.exists() else []
        lines = [line for line in lines if not line.startswith(f"[127.0.0.1]:{port} ")]
        lines.append(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}")
        self.known_hosts.write_text("\n".join(lines) + "\n")

    def _wait_for_ssh(self, name: str) -> None:
        record = self.record(name)
        assert record is not None

        def answers() -> bool:
            return self.run(name, "systemctl is-system-running --wait").stdout.strip() in ("running", "degraded")

        if not _wait(answers, BOOT_SECONDS, lambda: self.is_running(name)):
            raise RuntimeError(f"host {name} did not answer on port {record.port}:\n{self.console(name)}")

    # ---- down ---------------------------------------------------------------------------------------

    def down(self, names: list[str] | None = None) -> None:
        """End hosts, unmount and remove their roots. Right for hosts that are half made, crashed, or not there."""
        chosen = names if names is not None else self.names()
        for name in chosen:
            record = self.record(name)
            if record:
                for pid in _alive(record)[:1]:
                    os.kill(pid, signal.SIGTERM)
        for name in chosen:
            record = self.record(name)
            if record:
                ended = functools.partial(_is_over, record)
                if not _wait(ended, STOP_SECONDS):
                    for pid in _alive(record):
                        os.kill(pid, signal.SIGKILL)
                    _wait(ended, STOP_SECONDS)
            self._unmount(self.root(name))
            if (self.state / name).exists():
                shutil.rmtree(self.state / name)
        if self.state.exists():
            self._write_inventory()

    def _unmount(self, root: Path) -> None:
        if os.path.ismount(root):
            # mounts of the guest below its root go with its namespace a moment after its last process
            def unmounted() -> bool:
                return subprocess.run(["umount", str(root)], capture_output=True).returncode == 0

            if not _wait(unmounted, STOP_SECONDS):
                _run("umount", "--lazy", str(root))

    # ---- what there is --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Hosts with a folder, running or not."""
        return sorted(path.name for path in self.state.iterdir() if path.is_dir()) if self.state.exists() else []

    def record(self, name: str) -> Record | None:
        """What is recorded of a host, None where nothing is."""
        path = self.state / name / "record.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text())
        return Record(fields["name"], fields["port"], [(pid, start) for pid, start in fields["processes"]])

    def is_running(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and len(_alive(record)) == len(record.processes) > 1

    def ssh(self, name: str, command: str) -> list[str]:
        """The ssh command line that runs a command on a host as the login user."""
        record = self.record(name)
        if record is None:
            raise LookupError(f"no host {name} in {self.state}")
        options = [f"UserKnownHostsFile={self.known_hosts}", "BatchMode=yes", "ConnectTimeout=5", "LogLevel=ERROR"]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", *flags, "-i", str(self.key), "-p", str(record.port), f"{USER}@127.0.0.1", command]

    def run(self, name: str, command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on a host as the login user."""
        return subprocess.run(self.ssh(name, command), capture_output=True, text=True, timeout=timeout, check=False)

    def console(self, name: str) -> str:
        """The last lines of a host's console."""
        path = self.state / name / "console.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-20:]) if path.exists() else ""

    def snapshot(self, name: str) -> list[str]:
        """Every path of the host's root with type, mode, owner, size and times, but for TOUCHED_BY_ITSELF."""
        root = self.root(name)
        lines = []
        for folder, folders, files in os.walk(root):
            relative = Path(folder).relative_to(root)
            folders[:] = sorted(one for one in folders if str(relative / one) not in TOUCHED_BY_ITSELF)
            for one in sorted([*folders, *files]):
                path = relative / one
                if str(path) not in TOUCHED_BY_ITSELF:
                    status = os.lstat(root / path)
                    size = 0 if one in folders else status.st_size
                    lines.append(
                        f"{path} {status.st_mode:o} {status.st_uid}:{status.st_gid} {size} {status.st_mtime_ns}"
                    )
        return lines

    def root(self, name: str) -> Path:
        """The host's root as this machine sees it."""
        return self.state / name / "root"

    def _note(self, record: Record, pid: int) -> None:
        record.processes.append((pid, start_time(pid) or ""))
        _write(self.state / record.name / "record.json", json.dumps(dataclasses.asdict(record)))

    def _free_port(self) -> int:
        taken = {record.port for name in self.names() if (record := self.record(name))}
        return next(port for port in range(FIRST_PORT, FIRST_PORT + 90) if port not in taken and _is_free(port))

    def _write_inventory(self) -> None:
        hosts = {
            name: {
                "ansible_host": "127.0.0.1",
                "ansible_port": record.port,
                "ansible_user": USER,
                "ansible_become": True,
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_private_key_file": str(self.key),
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
            }
            for name in self.names()
            if (record := self.record(name))
        }
        _write(self.inventory, yaml.safe_dump({"all": {"hosts": hosts}}, explicit_start=True))


# ---- the base root ------------------------------------------------------------------------------------


def make_base(suite: str) -> Path:
    """The root that hosts are laid over, made once for each recipe. Concurrent calls wait for each other.

    :raises RuntimeError: mmdebstrap failed; its words are in the text.
    """
    ingredients = (suite, USER, *PACKAGES, inspect.getsource(_prepare_base))
    recipe = hashlib.sha256("\n".join(ingredients).encode()).hexdigest()[:12]
    base = CACHE / f"{suite}-{recipe}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock(CACHE / "lock"):
        if not base.exists():
            print(f"making a Debian {suite} root in {base}", flush=True)
            building = CACHE / f"{base.name}.building"
            shutil.rmtree(building, ignore_errors=True)
            _run(
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                '--aptopt=Acquire::Languages "none"',
                suite,
                str(building),
            )
            _prepare_base(building)
            building.rename(base)
    return base


def _prepare_base(root: Path) -> None:
    _run("chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", USER)
    (root / f"etc/sudoers.d/{USER}").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    (root / f"etc/sudoers.d/{USER}").chmod(0o440)
    (root / f"home/{USER}/.ssh").mkdir(mode=0o700)
    (root / f"home/{USER}/.ssh/authorized_keys").touch(mode=0o600)
    # there from the beginning, so that the first task leaves no trace in the folder above
    for home in (root / f"home/{USER}", root / "root"):
        (home / ".ansible").mkdir(mode=0o700)
    _run("chroot", str(root), "chown", "--recursive", f"{USER}:{USER}", f"/home/{USER}")
    (root / "var/log/journal").mkdir(exist_ok=True)
    # the guest reaches what this machine reaches: same resolver, same certificates
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")


# ---- small things ---------------------------------------------------------------------------------------


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")


def _wait(
    question: Callable[[], _Answer], seconds: float, goes_on: Callable[[], bool] = lambda: True
) -> _Answer | None:
    """Ask until the answer is a true one, the time is over, or ``goes_on`` says no."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and goes_on():
        answer = question()
        if answer:
            return answer
        time.sleep(0.1)
    return None


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def start_time(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot, None for one that is not there or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _alive(record: Record) -> list[int]:
    return [pid for pid, start in record.processes if start_time(pid) == start]


def _is_over(record: Record) -> bool:
    return not _alive(record)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".new")
    partial.write_text(text)
    partial.rename(path)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _named_ports(words: list[str]) -> dict[str, int | None]:
    pairs = (word.partition("=") for word in words)
    return {name: int(port) if port else None for name, _equals, port in pairs}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["up", "down", "list", "snapshot"])
    parser.add_argument("--state", type=Path, required=True, help="the folder that holds everything about the hosts")
    parser.add_argument("--suite", default="bookworm", choices=["bookworm", "trixie"], help="the Debian release")
    parser.add_argument("--bind-ro", action="append", default=[], metavar="FROM:TO", help="a folder to show the hosts")
    parser.add_argument("names", nargs="*", metavar="NAME[=PORT]")
    options = parser.parse_intermixed_args(words)
    if os.geteuid() != 0:
        parser.error("test hosts need root: they are made of mounts and namespaces")
    hosts = Hosts(options.state, options.suite)
    if options.command == "up":
        hosts.up(_named_ports(options.names), tuple(options.bind_ro))
    elif options.command == "down":
        hosts.down(options.names or None)
    elif options.command == "snapshot":
        print("\n".join(line for name in options.names for line in hosts.snapshot(name)))
        return 0
    for name in hosts.names():
        record = hosts.record(name)
        state = "runs" if hosts.is_running(name) else "does not run"
        print(f"{name} {state}, ssh port {record.port if record else 'unknown'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
