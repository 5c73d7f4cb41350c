# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the real SGLang with a tiny model, and tell how it went: the check of the CPU engine kit.

``python tests/engine/real_server.py --engine VENV --models ROOT`` runs the target with each drafter and without,
prints start times and acceptance lengths, and fails when a text or an acceptance length is not the known one.
``--record DIR`` writes the answers of the first server as fixtures.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engine import models, record
from tests.engine.server_flags import ONE_GUESS, SERVER_ARGS, SERVER_ENV, THREE_GUESSES

SERVED_NAME = "tiny-k2"
# Several decode log intervals with every drafter, and more than one turn of the sentence.
TOKENS = 160
START_SECONDS = 300.0
STOP_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Case:
    """A drafter with its settings and the acceptance length that it has to reach."""

    drafter: str | None
    args: dict[str, t.Any]
    accept_length: float | None


CASES = {
    "good": Case(models.DRAFTER_GOOD, ONE_GUESS, models.expected_accept_length((), 1)),
    "half": Case(models.DRAFTER_HALF, THREE_GUESSES, models.expected_accept_length(models.HALF_BROKEN, 3)),
    "mla": Case(models.DRAFTER_MLA, THREE_GUESSES, models.expected_accept_length(models.HALF_BROKEN, 3)),
    "bad": Case(models.DRAFTER_BAD, THREE_GUESSES, models.expected_accept_length(models.WORDS, 3)),
    "none": Case(None, {}, None),
}
# Verifications at the ends of a text count otherwise than in its middle.
TOLERANCE = 0.1


def command_line(engine: Path, root: Path, case: Case, port: int) -> list[str]:
    """The launch command of a case."""
    args = {
        "model_path": str(root / models.TARGET),
        "served_model_name": SERVED_NAME,
        "host": "127.0.0.1",
        "port": port,
    }
    args |= SERVER_ARGS | case.args
    if case.drafter:
        args["speculative_draft_model_path"] = str(root / case.drafter)
    return [str(engine / "bin/python"), "-m", "sglang.launch_server", *flags(args)]


def flags(args: Mapping[str, t.Any]) -> list[str]:
    """SGLang's command line for a mapping of its flags; True is a flag without a value."""
    words = []
    for name, value in args.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


@contextlib.contextmanager
def serving(engine: Path, root: Path, case: Case, port: int, log: t.IO[bytes]) -> t.Iterator[list[tuple[int, float]]]:
    """A healthy server; gives each status of /health on the way with the second of its first, and stops it in the end.

    :raises TimeoutError, RuntimeError: it did not become healthy, it ended.
    """
    begin = time.monotonic()
    process = subprocess.Popen(
        command_line(engine, root, case, port),
        env=os.environ | SERVER_ENV,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    start: list[tuple[int, float]] = []
    try:
        while not start or start[-1][0] != 200:
            status = ask(port, "/health")[0]
            if not start or start[-1][0] != status:
                start.append((status, time.monotonic() - begin))
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}; see {log.name}")
            if time.monotonic() - begin > START_SECONDS:
                raise TimeoutError(f"not healthy after {START_SECONDS:.0f} s; see {log.name}")
            time.sleep(0.5)
        yield start
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ask(port: int, path: str, document: dict[str, t.Any] | None = None) -> tuple[int, bytes]:
    """``(status, body)`` of a request, POST if there is a document; status 0 when nobody listens."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read()
    except OSError:
        return 0, b""


def check(name: str, engine: Path, root: Path, port: int, logs: Path, fixtures: Path | None) -> list[str]:
    """Run one case, print its figures and give what is wrong."""
    case = CASES[name]
    with (logs / f"{name}.log").open("wb") as log, serving(engine, root, case, port, log) as start:
        if fixtures:
            recorded = record.answers(lambda path, document: ask(port, path, document), SERVED_NAME)
            record.write(recorded | {"start": [status for status, _seconds in start]}, fixtures)
        answer = json.loads(ask(port, "/generate", record.generation(TOKENS))[1])
        state = json.loads(ask(port, "/server_info")[1])["internal_states"][0]
    meta = answer["meta_info"]
    figures = {key: meta[key] for key in ("spec_accept_length", "spec_accept_rate", "spec_verify_ct") if key in meta}
    average = state.get("avg_spec_accept_length")
    phases = ", ".join(f"{status} at {seconds:.1f} s" for status, seconds in start)
    print(f"{name}: /health {phases}; average acceptance length {average}; {figures}", flush=True)
    problems = []
    if answer["text"].split() != models.expected_continuation(record.PROMPT, TOKENS).split():
        problems.append(f"{name}: the text is {answer['text']!r}")
    length = figures.get("spec_accept_length")
    if case.accept_length is not None and (length is None or abs(length - case.accept_length) > TOLERANCE):
        problems.append(f"{name}: acceptance length {length}, not {case.accept_length:.2f}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True, help="virtualenv made from the CPU engine lock")
    parser.add_argument("--models", type=Path, required=True, help="folder made by models.py")
    parser.add_argument("--port", type=int, default=31900, help="TCP port on 127.0.0.1")
    parser.add_argument("--record", type=Path, help="write the first server's answers into this folder")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()), help="folder for the servers' logs")
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}; default all")
    arguments = parser.parse_args()
    arguments.logs.mkdir(parents=True, exist_ok=True)
    problems = []
    for number, name in enumerate(arguments.cases):
        fixtures = arguments.record if number == 0 else None
        problems += check(name, arguments.engine, arguments.models, arguments.port, arguments.logs, fixtures)
    print("\n".join(problems) or "all as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
