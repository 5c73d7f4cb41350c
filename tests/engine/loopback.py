# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of this machine, and a real BitTorrent tracker on one of them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

OPENTRACKER = "opentracker"
_SECONDS_TO_START = 30.0


def free_port() -> int:
    """A port that nobody listened on just now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def tracker(info_hash: str) -> Iterator[str]:
    """A tracker that serves one torrent. Gives its address.

    :raises RuntimeError: it does not start.
    """
    port = free_port()
    # it refuses to run as root, and pytest's folders are closed to other users
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "whitelist").write_text(info_hash + "\n")
        (folder / "tracker.conf").write_text(f"listen.tcp 127.0.0.1:{port}\naccess.whitelist {folder}/whitelist\n")
        user = "nobody" if os.geteuid() == 0 else None
        with subprocess.Popen([OPENTRACKER, "-f", str(folder / "tracker.conf")], cwd=folder, user=user) as process:
            try:
                _wait(process, port)
                yield f"http://127.0.0.1:{port}/announce"
            finally:
                process.kill()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{OPENTRACKER} does not listen on port {port}; exit status {process.poll()}")
        time.sleep(0.01)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
