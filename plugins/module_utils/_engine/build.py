# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Building one engine: a virtual environment that is complete or is never used.

A virtual environment cannot be moved, so it is built where it stays. What says that it is complete is a marker, written
last and by one rename. A directory without the marker is what an interrupted build left, and the next build removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t
import urllib.parse

from .._plan.engine_lock import EngineLock, read_engine_lock

MARKER = ".complete"
_BUILD_LOCK = ".build.lock"
_TAIL_LINES = 20
_LOCKED_WHEELS = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
_UV_PIN = re.compile(r"^uv==(\S+)", re.MULTILINE)
_PROBE = """
import importlib.metadata, sys
import sglang
print("%d.%d" % sys.version_info[:2], importlib.metadata.version("sglang"))
"""


class BuildProblem(Exception):
    """The engine was not built.

    :param step: what was being done, in words that complete "failed while ...".
    :param reason: the tool's own last lines, or what is wrong; never holds a password.
    """

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"failed while {step}: {reason}")
        self.step = step
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to build and from where.

    :param path: final directory; its name ends in ``-<digest>``, so that nothing else is ever removed.
    :param lock: directory of the engine lock on this host.
    :param digest: the digest that the plan was made with, 12 hex digits.
    :param uv_venv: directory of uv's own virtual environment. It is made again when uv does not answer there.
    :param uv_lock: requirements file on this host with uv's exact version and hashes.
    :param python: interpreter, a path or a name that is on the PATH.
    :param cache: directory of uv's cache. On the file system of ``path``, wheels are linked and not copied.
    :param index_url: package index, may hold a password. None for uv's own.
    :param wheelhouse: directory or URL of wheels that replaces every index. None for an index.
    :param timeout: seconds for the whole build, waiting for another one included.
    """

    path: str
    lock: str
    digest: str
    uv_venv: str
    uv_lock: str
    python: str
    cache: str
    index_url: str | None
    wheelhouse: str | None
    timeout: float

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path) or not os.path.basename(self.path).endswith(f"-{self.digest}"):
            raise ValueError(f"path is {self.path!r}, it has to be absolute and its name has to end in -{self.digest}")


def is_complete(path: str, digest: str) -> bool:
    """Whether ``path`` holds the finished engine of ``digest``. An unreadable marker is none."""
    try:
        with open(os.path.join(path, MARKER), encoding="utf-8") as stream:
            marker = json.load(stream)
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("digest") == digest


def build(recipe: Recipe) -> bool:
    """Build the engine unless it is complete. Returns whether it was built.

    :raises BuildProblem: a step failed; what it left is no engine and the next build removes it.
    :raises EngineLockProblem: the lock cannot be read.
    """
    deadline = time.monotonic() + recipe.timeout
    # The service's user reads what is built here, whatever umask root has.
    os.umask(0o022)
    with _sole_build(os.path.dirname(recipe.path), deadline) as held:
        if is_complete(recipe.path, recipe.digest):
            return False
        lock = read_engine_lock(recipe.lock)
        if lock.digest != recipe.digest:
            raise BuildProblem("reading the lock", f"its digest is {lock.digest}, the plan's is {recipe.digest}")
        if os.path.lexists(recipe.path):
            shutil.rmtree(recipe.path)
        with tempfile.TemporaryDirectory() as home:
            _fill(recipe, lock, _Runner(recipe, home, deadline, held))
    return True


def _fill(recipe: Recipe, lock: EngineLock, run: _Runner) -> None:
    uv, uv_version = _uv(recipe, run)
    python = os.path.join(recipe.path, "bin", "python")
    requirements = os.path.join(recipe.lock, "requirements.txt")
    run("making the virtual environment", uv, "venv", "--no-project", "--python", recipe.python, recipe.path)
    run(
        "installing the locked wheels",
        *(uv, "pip", "install", "--python", python, *_LOCKED_WHEELS, "--requirements", requirements),
        *_source(recipe),
    )
    run("checking that the packages fit together", uv, "pip", "check", "--python", python)
    _check_import(lock, run("importing sglang", python, "-I", "-c", _PROBE))
    # uv leaves it writable for everybody, for its next change. There is none.
    os.unlink(os.path.join(recipe.path, ".lock"))
    marker = {
        "digest": recipe.digest,
        "version": lock.sglang,
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "uv": uv_version,
    }
    _write_marker(os.path.join(recipe.path, MARKER), json.dumps(marker, indent=2) + "\n")


def _uv(recipe: Recipe, run: _Runner) -> tuple[str, str]:
    """uv's path and version, installed where the locked version does not answer."""
    step = "installing uv"
    with open(recipe.uv_lock, encoding="utf-8") as stream:
        pinned = _UV_PIN.search(stream.read())
    if pinned is None:
        raise BuildProblem(step, f"{recipe.uv_lock} does not pin uv")
    version = pinned[1]
    uv = os.path.join(recipe.uv_venv, "bin", "uv")
    if not _answers(run, uv, version):
        run(step, "python3", "-m", "venv", "--clear", recipe.uv_venv)
        pip = (os.path.join(recipe.uv_venv, "bin", "python"), "-m", "pip", "--disable-pip-version-check")
        run(step, *pip, "install", *_LOCKED_WHEELS, "--requirement", recipe.uv_lock, *_source(recipe))
        if not _answers(run, uv, version):
            raise BuildProblem(step, f"{uv} is not uv {version}")
    return uv, version


def _source(recipe: Recipe) -> tuple[str, ...]:
    """Options of uv and pip that name a wheelhouse. An index goes by the environment, for the password it may hold."""
    return ("--no-index", "--find-links", recipe.wheelhouse) if recipe.wheelhouse else ()


def _answers(run: _Runner, uv: str, version: str) -> bool:
    try:
        return run("asking uv for its version", uv, "--version").split()[:2] == ["uv", version]
    except BuildProblem:
        # Absent, or cut short by an interrupted installation.
        return False


def _check_import(lock: EngineLock, printed: str) -> None:
    # What a package prints when it is imported comes before.
    found = printed.split()[-2:]
    if found != [lock.python, lock.sglang]:
        raise BuildProblem(
            "importing sglang",
            f"Python and SGLang are {' and '.join(found)}, the lock is for {lock.python} and {lock.sglang}",
        )


def _write_marker(path: str, text: str) -> None:
    """All of it or nothing, also through a power failure."""
    partial = f"{path}.part"
    with open(partial, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(text)
        stream.flush()
    # The marker must not reach the disk before what it vouches for, which is more files than can be synced one by one.
    os.sync()
    os.rename(partial, path)


@contextlib.contextmanager
def _sole_build(folder: str, deadline: float) -> t.Iterator[int]:
    """Hold the directory of the engines for one build, and give the descriptor that holds it.

    Child processes inherit the descriptor: when a build is killed and its uv goes on, uv still holds the directory.
    """
    descriptor = os.open(os.path.join(folder, _BUILD_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildProblem("waiting", f"another build still holds {folder}/{_BUILD_LOCK}") from None
                time.sleep(1)
        yield descriptor
    finally:
        os.close(descriptor)


class _Runner:
    """Runs one step after another with the same environment and against the same deadline."""

    def __init__(self, recipe: Recipe, home: str, deadline: float, inherited: int) -> None:
        self.deadline = deadline
        self.inherited = inherited
        self.timeout = recipe.timeout
        self.secrets = passwords(recipe.index_url)
        self.home = home
        self.environment = {**os.environ, **tool_environment(recipe), "HOME": home}

    def __call__(self, step: str, *command: str) -> str:
        """Run a command and give its standard output."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                # run_command has no limit of time, and passes no descriptor on
                process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                    command,
                    cwd=self.home,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    pass_fds=(self.inherited,),
                    start_new_session=True,
                )
            except OSError as exc:
                raise BuildProblem(step, f"{command[0]}: {exc.strerror}") from exc
            try:
                code = process.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise BuildProblem(step, f"the build was not over after {self.timeout:g} seconds") from None
            finally:
                _end(process)
            printed = _read(output)
            if code:
                raise BuildProblem(step, self._tail(_read(errors) or printed) or f"exit code {code}")
            return printed

    def _tail(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "****")
        return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])


def _read(stream: t.IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tool_environment(recipe: Recipe) -> dict[str, str]:
    """Settings of uv and pip. By environment, since a command line can be read by every user of the host."""
    settings = {
        "UV_CACHE_DIR": recipe.cache,
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        # The certificates that the host trusts, among them those of a private index.
        "UV_SYSTEM_CERTS": "1",
        # The service's user cannot write bytecode here, and would compile every module at every start.
        "UV_COMPILE_BYTECODE": "1",
    }
    if recipe.index_url:
        settings.update(UV_DEFAULT_INDEX=recipe.index_url, PIP_INDEX_URL=recipe.index_url)
    return settings


def passwords(url: str | None) -> list[str]:
    """The password in a URL, as it is written and as it is meant; what may stand in no message."""
    written = urllib.parse.urlsplit(url).password if url else None
    return [written, urllib.parse.unquote(written)] if written else []
