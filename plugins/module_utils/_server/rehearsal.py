# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The engine's own judgement of a release, before a service is touched: its argument handling and nothing more.

What runs is the release's own unit with another program in it, so user, environment, credentials and protection are
those of the service, and its command line reaches the engine through systemd as it will then. No weights are loaded.
SGLang may ask the driver which GPU there is, as it does at every start.
"""

from __future__ import annotations

import json
import re
import tempfile
import typing as t
from pathlib import Path

from .service import Command
from .systemd import exec_start

_SERVER = " -m sglang.launch_server"
#: What the rehearsal has of its own. The rest of the section is the service's.
_OWN = ("Type", "ExecStart", "Restart", "RestartSec", "TimeoutStopSec", "StandardOutput", "StandardError")
_VERDICT = "inferops-verdict:"
# As sglang.launch_server goes about it. Releases before 0.5.19 resolve while they parse and have no plugins.
_PROGRAM = f"""
import json, sys, traceback
argv = sys.argv[1:]
sys.argv = ["sglang.launch_server", *argv]
verdict = {{"ok": False}}
try:
    try:
        from sglang.srt.plugins import load_plugins
    except ImportError:
        pass
    else:
        load_plugins()
    from sglang.srt.server_args import prepare_server_args
    args = prepare_server_args(argv)
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    args.check_server_args()
    verdict["ok"] = True
except SystemExit as exc:
    verdict["exception"] = "SystemExit"
except BaseException as exc:
    verdict["exception"] = type(exc).__name__
    verdict["words"] = (type(exc).__name__ + ": " + str(exc)).rstrip(": ")
    verdict["traceback"] = traceback.format_exc()
print("\\n{_VERDICT}" + json.dumps(verdict), flush=True)
"""


class Refused(Exception):
    """The engine does not take the command line. The text is its own words; ``traceback`` may be empty."""

    def __init__(self, words: str, traceback: str) -> None:
        super().__init__(words)
        self.traceback = traceback


def rehearse(run: Command, unit: str, path: Path, seconds: int) -> None:
    """Ask the engine.

    :param unit: the text of the release's unit.
    :param path: of the rehearsal's unit, in a directory of units that are gone after a boot.
    :param seconds: the engine has for its answer.
    :raises Refused: the engine does not take the command line, or could not say.
    :raises ValueError: the unit starts something else.
    """
    name = path.name
    with tempfile.TemporaryDirectory(prefix="inferops-rehearsal-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        text = rehearsal_unit(unit, seconds, out, err)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_text(text, encoding="utf-8")
            run(["systemctl", "daemon-reload"])
            _status, _out, words = run(["systemctl", "start", name])
            _status, result, _err = run(["systemctl", "show", "--property=Result", "--value", name])
        finally:
            path.unlink(missing_ok=True)
            run(["systemctl", "reset-failed", name])
            run(["systemctl", "daemon-reload"])
        _judge(_read(out), _read(err) or words, f"no verdict within {seconds} s" if result.strip() == "timeout" else "")


def rehearsal_unit(unit: str, seconds: int, out: Path, err: Path) -> str:
    """The text of the rehearsal's unit.

    :raises ValueError: the release's unit does not start sglang.launch_server.
    """
    service = re.split(r"^\[(\w+)\]$", unit, flags=re.MULTILINE)
    section = service[service.index("Service") + 1].splitlines()
    start = next((line for line in section if line.startswith("ExecStart=")), "")
    engine, server, arguments = start.partition("=")[2].partition(_SERVER)
    if not server:
        raise ValueError("the unit does not start sglang.launch_server")
    # words of exec_start before, words as systemd reads them in the service after
    program = exec_start(["/python", "-c", _PROGRAM]).partition(" ")[2]
    kept = [line for line in section if line.partition("=")[0] not in _OWN]
    return "\n".join(
        [
            "[Unit]",
            "Description=Rehearsal of a release of an SGLang server",
            "[Service]",
            "Type=oneshot",
            f"TimeoutStartSec={seconds}",
            "TimeoutStopSec=5",
            f"StandardOutput=file:{out}",
            f"StandardError=file:{err}",
            f"ExecStart={engine} {program}{arguments}",
            *kept,
            "",
        ]
    )


def _judge(out: str, err: str, problem: str) -> None:
    for line in reversed(out.splitlines()):
        if line.startswith(_VERDICT):
            verdict: dict[str, t.Any] = json.loads(line[len(_VERDICT) :])
            if verdict["ok"]:
                return
            # argparse says what is wrong on standard error and ends the program
            raise Refused(verdict.get("words") or _last_line(err) or verdict["exception"], verdict.get("traceback", ""))
    raise Refused(problem or _last_line(err) or _last_line(out) or "no verdict", err)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
