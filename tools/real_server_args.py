# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the real SGLang for its server flags and for its verdicts on command lines, without a GPU.

Usage: ENGINE/bin/python tools/real_server_args.py flags
       ENGINE/bin/python tools/real_server_args.py verdicts --models MODELS_DIR [--gpu h200] < lines.jsonl

Runs with the Python of an environment that holds the SGLang to be asked, and needs nothing else.

``flags`` prints one JSON line, ``{"version": ..., "flags": {"--name": {...argparse fields...}}}``, for
tools/flag_table.py. ``verdicts`` reads JSON lines with argv and perhaps gpu, env and id, and prints each again with its
verdict, for tools/verdicts.py: ``ok: true`` with resolved, or ``ok: false`` with stage, exception and message. MODELS/x
in argv is MODELS_DIR/x. SGLang keeps what it has learnt of the accelerator, so there is one process for each GPU.

SGLang's own code is unmodified. Stubbed is what it asks of the accelerator: of ``torch.cuda`` is_available,
is_initialized, device_count (8), current_device, get_device_capability, get_device_name, get_device_properties and
mem_get_info; ``torch.version.cuda``; ``nvidia-smi``, by a script of that name in front of PATH; and the kernel packages
flashinfer, deep_gemm and sgl_kernel: where one is not installed, importing it gives a module in which every name is a
class that does nothing. Nothing is fetched from the Hub: HF_HUB_OFFLINE is set.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import logging
import multiprocessing
import os
import stat
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

#: Compute capability and memory in MiB, as the driver reports them.
GPUS = {
    "b200": ((10, 0), 183359),
    "h200": ((9, 0), 143771),
    "rtx_pro_6000_blackwell": ((12, 0), 97887),
}
DEVICES = 8
KERNELS = ("deep_gemm", "flashinfer", "sgl_kernel")
PREFIX = "MODELS/"
RESOLVED = (
    "attention_backend",
    "disable_overlap_schedule",
    "enable_mixed_chunk",
    "max_running_requests",
    "page_size",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
)
MESSAGE = 300


def flags() -> dict[str, Any]:
    """Every server flag of the installed release, by its first name."""
    import sglang  # type: ignore[import-not-found]
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    found = {action.option_strings[0]: _fields(action) for action in parser._actions}
    return {"version": sglang.__version__, "flags": found}


def _fields(action: argparse.Action) -> dict[str, Any]:
    choices = action.choices
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "action": type(action).__name__.lstrip("_"),
        "type": getattr(action.type, "__name__", None),
        # the order of a set is another one in each process
        "choices": sorted(choices) if isinstance(choices, (set, frozenset)) else choices and list(choices),
        "default": action.default,
        "nargs": action.nargs,
    }


class AbsentKernels(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives modules for the kernel packages that are not installed."""

    def __init__(self) -> None:
        self.names = {name for name in KERNELS if importlib.util.find_spec(name) is None}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing in it."""


def _absent(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _AbsentClass(name, (), {})


class _AbsentClass(type):
    def __getattr__(cls, name: str) -> type:
        return _absent(name)


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        return _absent(name)


def verdicts(gpu: str, rows: list[dict[str, Any]], models: str) -> list[dict[str, Any]]:
    """The real answers to command lines on one GPU. Once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        fake_accelerator(gpu, Path(folder))
        logging.disable(logging.CRITICAL)
        return [_verdict(gpu, row, models) for row in rows]


def fake_accelerator(gpu: str, folder: Path) -> None:
    """Let this process, which must not have imported SGLang yet, find 8 such devices."""
    capability, mib = GPUS[gpu]
    size = mib * 2**20
    smi = folder / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *memory.total*) answer={mib};; *compute_cap*) answer={".".join(map(str, capability))};;'
        " *) exit 1;; esac\n"
        f"for _ in $(seq {DEVICES}); do echo $answer; done\n"
    )
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch  # type: ignore[import-not-found]

    major, minor = capability
    properties = types.SimpleNamespace(
        name=f"NVIDIA {gpu}", total_memory=size, major=major, minor=minor, multi_processor_count=132
    )
    answers = {
        "is_available": True,
        "is_initialized": True,
        "device_count": DEVICES,
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "mem_get_info": (size, size),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_args, _answer=answer, **_kwargs: _answer)
    torch.version.cuda = "13.0"
    sys.meta_path.append(AbsentKernels())


def _verdict(gpu: str, row: dict[str, Any], models: str) -> dict[str, Any]:
    import sglang

    before = dict(os.environ)
    os.environ.update(row.get("env") or {})
    try:
        answer = _ask([f"{models}/{word[len(PREFIX) :]}" if word.startswith(PREFIX) else word for word in row["argv"]])
    finally:
        # resolving sets variables too
        os.environ.clear()
        os.environ.update(before)
    draft = "speculative_draft_model_path"
    if answer["ok"] and answer["resolved"][draft]:
        answer["resolved"][draft] = answer["resolved"][draft].replace(f"{models}/", PREFIX)
    return {"version": sglang.__version__, **row, "gpu": gpu, **answer}


def _ask(argv: list[str]) -> dict[str, Any]:
    """Parse, resolve and check as the server's start does. Up to 0.5.18 parsing resolves too."""
    from sglang.srt.server_args import prepare_server_args

    stage = "resolve"
    words = io.StringIO()
    try:
        with contextlib.redirect_stderr(words), contextlib.redirect_stdout(io.StringIO()):
            args = prepare_server_args(argv)
            if hasattr(args, "resolve_once"):
                args.resolve_once()
            stage = "check"
            args.check_server_args()
    except SystemExit:
        message = words.getvalue().strip().rpartition("\n")[2]
        return {"ok": False, "stage": "argparse", "exception": "SystemExit", "message": message[:MESSAGE]}
    except Exception as exc:
        return {"ok": False, "stage": stage, "exception": type(exc).__name__, "message": str(exc)[:MESSAGE]}
    values = args.resolved_dict() if hasattr(args, "resolved_dict") else vars(args)
    return {"ok": True, "resolved": {key: values.get(key) for key in RESOLVED}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    jobs = parser.add_subparsers(dest="job", required=True)
    jobs.add_parser("flags", help="print the release's server flags")
    asked = jobs.add_parser("verdicts", help="judge the command lines on standard input")
    asked.add_argument("--models", required=True, help="the folder that MODELS/ stands for")
    asked.add_argument("--gpu", default="h200", choices=GPUS, help="for lines without one (default: %(default)s)")
    options = parser.parse_args()
    if options.job == "flags":
        print(json.dumps(flags(), sort_keys=True))
        return
    rows = [json.loads(line) for line in sys.stdin if line.strip()]
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.get("gpu", options.gpu), []).append(place)
    answers: dict[int, dict[str, Any]] = {}
    models = os.path.abspath(options.models)
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=2, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        jobs_running = {gpu: pool.submit(verdicts, gpu, [rows[i] for i in own], models) for gpu, own in places.items()}
        for gpu, job in jobs_running.items():
            answers.update(zip(places[gpu], job.result()))
    for place in range(len(rows)):
        print(json.dumps(answers[place], sort_keys=True))


if __name__ == "__main__":
    main()
