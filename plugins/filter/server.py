# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters over ``sglang_server_args``: thin adapters of the private package _sglang."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.module_utils._sglang import command_line
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import flag_table, nearest_known
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import GpuProblem, read_gpu
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import Report, judge
from ansible_collections.inferops.serving.plugins.module_utils._sglang.models import Model
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release


def server_report(
    args: t.Any,
    version: t.Any,
    gpu: t.Any = None,
    target: t.Any = None,
    drafter: t.Any = None,
) -> dict[str, t.Any]:
    """Everything the planner says of one set of server arguments."""
    report = _report(args, version, gpu, target, drafter)
    return {
        "ok": report.ok,
        "findings": [finding.as_dict() for finding in report.findings],
        "resolved": dict(report.resolved),
        "argv": list(report.argv),
        "confidence": report.confidence,
    }


def validated_server_args(
    args: t.Any,
    version: t.Any,
    gpu: t.Any = None,
    target: t.Any = None,
    drafter: t.Any = None,
) -> dict[str, t.Any]:
    """The arguments with what SGLang would make of them, or an error with every stopping finding."""
    report = _report(args, version, gpu, target, drafter)
    stopping = report.stopping()
    if stopping:
        raise AnsibleFilterError(" ".join(f"[{finding.rule}] {finding.message}" for finding in stopping), obj=args)
    table = flag_table(nearest_known(_release(version)))
    validated = dict(args)
    for key in args:
        flag = table.find(str(key))
        if flag is not None and report.resolved.get(flag.dest) is not None:
            validated[key] = report.resolved[flag.dest]
    return validated


def server_argv(args: t.Any, version: t.Any) -> list[str]:
    """The words after ``python -m sglang.launch_server``."""
    table = flag_table(nearest_known(_release(version)))
    try:
        return command_line.server_argv(_mapping(args), table)
    except command_line.CommandLineProblem as exc:
        raise AnsibleFilterError(f"{exc}.", obj=args) from None  # its text is in ours


def server_config(args: t.Any) -> str:
    """Texts for flags, as the file that SGLang reads with ``--config``."""
    # values are secrets: no message may show them
    if not isinstance(args, t.Mapping) or not all(isinstance(value, str) for value in args.values()):
        raise AnsibleFilterError("The arguments of a configuration file are a mapping of flags to texts.")
    return command_line.config_text({str(key): str(value) for key, value in args.items()})


def parse_server_command(command: t.Any, version: t.Any) -> dict[str, t.Any]:
    """A command line or ExecStart as an inventory mapping."""
    if not isinstance(command, str):
        raise AnsibleFilterError(f"The command is a {type(command).__name__}; it is one text.", obj=command)
    table = flag_table(nearest_known(_release(version)))
    try:
        return command_line.parse_argv(command_line.split_command(command), table)
    except command_line.CommandLineProblem as exc:
        raise AnsibleFilterError(f"{exc}.", obj=command) from None  # its text is in ours


def _report(args: t.Any, version: t.Any, gpu: t.Any, target: t.Any, drafter: t.Any) -> Report:
    try:
        accelerator = read_gpu(gpu)
    except GpuProblem as exc:
        raise AnsibleFilterError(f"{exc}.", obj=gpu) from None  # its text is in ours
    return judge(_mapping(args), _release(version), accelerator, _model(target), _model(drafter))


def _mapping(args: t.Any) -> t.Mapping[str, t.Any]:
    if not isinstance(args, t.Mapping):
        raise AnsibleFilterError(
            f"The server arguments are a {type(args).__name__}; they are a mapping of flags to values.",
            obj=args,
        )
    return args


def _release(version: t.Any) -> Release:
    try:
        return Release.parse(str(version))
    except ValueError as exc:
        raise AnsibleFilterError(f"{exc}.", obj=version) from None  # its text is in ours


def _model(config: t.Any) -> Model:
    if config is None:
        return Model()
    if not isinstance(config, t.Mapping):
        raise AnsibleFilterError(
            f"The model is a {type(config).__name__}; it is the mapping of its config.json.", obj=config
        )
    return Model(config=config)


class FilterModule:
    """Filters of inferops.serving."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "parse_server_command": parse_server_command,
            "server_argv": server_argv,
            "server_config": server_config,
            "server_report": server_report,
            "validated_server_args": validated_server_args,
        }
