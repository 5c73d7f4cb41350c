# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A running server as an inventory: its variables as YAML, what they do not hold, and what the plan says of them."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .._sglang.arguments import SECRET_FLAGS
from .._sglang.command_line import Reading, read_argv
from .._sglang.flags import FlagTable, flag_table, inventory_key, nearest_known
from .._sglang.versions import Release
from . import report
from .fleet import FleetPlan, plan_fleet
from .host import plan_host
from .places import nowhere
from .running import AdoptProblem, Running, names_secret, read_running

#: What the findings call the host, which the text does not name.
_HOST = "the adopted server"
_DEFAULT_PORT = 30000
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_CREDENTIALS = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_NUMBER = re.compile(r"[-+]?[\d.]+\Z")
_REFERENCE = re.compile(r"\$[A-Za-z_{(]")
_JINJA = re.compile(r"\{[{%#]")
#: Variables that name places of the old installation.
_OLD_PLACES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
_REFERS = "holds a reference with $ that the text does not explain; write its value."


@dataclasses.dataclass(frozen=True)
class Adoption:
    """What became of one text. ``inventory`` is YAML; no part holds the value of a secret."""

    variables: t.Mapping[str, t.Any]
    withheld: t.Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    fleet: FleetPlan

    @property
    def report(self) -> str:
        """The inventory, the notes and every finding, for people."""
        notes = "\n".join(f"  - {note}" for note in self.notes)
        parts = [
            self.inventory.rstrip("\n"),
            f"To look at before it is used:\n{notes}" if notes else "Everything of the text is in it.",
            report.everything(self.fleet) or "The plan finds nothing in it.",
        ]
        return "\n\n".join(parts)

    @property
    def inventory(self) -> str:
        """The variables as YAML; withheld secrets stand in comments."""
        parts = [
            _yaml(name, value) + _comments(name, self.withheld.get(name, ())) for name, value in self.variables.items()
        ]
        return "---\n" + "".join(parts)


def adopt(text: str, version: str | None = None, name: str | None = None, gpu: t.Any = None) -> Adoption:
    """Adopt the server that a text starts.

    :param version: the release to plan for, where the text does not say it or another one is wanted.
    :param name: the name of the service; by default the container's, or main.
    :param gpu: the value of sglang_plan_gpu.
    :raises AdoptProblem: the text starts no server that can be read, or no release is known.
    """
    running = read_running(text)
    release = _release(version, running)
    table = flag_table(nearest_known(release))
    reading = read_argv(running.argv, table)
    secret_args = [key for key, value in reading.args.items() if _is_secret_flag(key, value, table)]
    secret_env = [key for key, value in running.env.items() if names_secret(key) or _has_credentials(value)]
    args = {key: value for key, value in reading.args.items() if key not in secret_args}
    _publish(args, running, table)
    variables: dict[str, t.Any] = {
        "sglang_engine_version": str(release),
        "sglang_server_name": name or _name(running),
        "sglang_server_args": args,
        "sglang_server_env": {key: value for key, value in running.env.items() if key not in secret_env},
    }
    if gpu is not None:
        variables["sglang_plan_gpu"] = gpu
    _note_arguments(reading, args, secret_args, running)
    _note_environment(variables["sglang_server_env"], secret_env, running)
    # The plan is told of a secret that stood on the command line, and not which one it is.
    exposed = {key: "withheld" for key in secret_args if key in SECRET_FLAGS}
    judged = {**variables, "sglang_server_args": {**args, **exposed}}
    return Adoption(
        variables=variables,
        withheld={"sglang_server_args": tuple(secret_args), "sglang_server_env": tuple(secret_env)},
        notes=tuple(running.notes),
        fleet=plan_fleet([plan_host(_HOST, judged, {})], lambda _host: nowhere),
    )


def _release(version: str | None, running: Running) -> Release:
    written = version or running.release
    if written is None:
        raise AdoptProblem("The text does not say which SGLang release it starts; give it as sglang_engine_version")
    try:
        release = Release.parse(written)
        told = Release.parse(running.release) if running.release else release
    except ValueError as exc:
        raise AdoptProblem(str(exc)) from exc
    if told != release:
        running.note(
            f"The text starts SGLang {told}; it is judged and written for {release}, as sglang_engine_version."
        )
    return release


def _name(running: Running) -> str:
    name = _NO_NAME.sub("-", running.name or "").strip("-._")[:64]
    return name[len("sglang-") :] if name.startswith("sglang-") else name or "main"


def _is_secret_flag(key: str, value: t.Any, table: FlagTable) -> bool:
    if _has_credentials(value):
        return True
    flag = table.find(key)
    if flag is not None:
        return inventory_key(flag.name) in SECRET_FLAGS
    # a misspelt --speculative-num-draft-token is no secret
    return table.nearest(key) in SECRET_FLAGS or (names_secret(key) and not _NUMBER.match(str(value)))


def _has_credentials(value: t.Any) -> bool:
    """A URL with a password, or a mapping with a key that names a secret."""
    if isinstance(value, dict):
        return any(names_secret(str(key)) or _has_credentials(one) for key, one in value.items())
    if isinstance(value, list):
        return any(_has_credentials(one) for one in value)
    return isinstance(value, str) and _CREDENTIALS.search(value) is not None


def _publish(args: dict[str, t.Any], running: Running, table: FlagTable) -> None:
    """The port as the clients know it: a service on the host has no second one."""
    if table.find("port") is None:
        return
    port = str(args.get("port", _DEFAULT_PORT))
    for address, published, inside in running.ports:
        if inside == port and published.isdigit():
            if published != port:
                running.note(f"The container publishes its port {port} as {published}; port is {published} here.")
                args["port"] = int(published)
            if address in ("127.0.0.1", "[::1]") and args.get("host") is not None:
                running.note(f"The container publishes its port at {address} only; host is that here.")
                args["host"] = address.strip("[]")
            return


def _note_arguments(
    reading: Reading, args: t.Mapping[str, t.Any], secret_args: t.Sequence[str], running: Running
) -> None:
    for key in secret_args:
        running.note(
            f"The value of {key} is not repeated, and no command line of this collection holds one. Without it the"
            " server asks its clients for no key."
            if key in ("api_key", "admin_api_key")
            else f"The value of {key} is or may be a secret and is not repeated."
        )
    for key, count in reading.strays.items():
        words = "1 word" if count == 1 else f"{count} words"
        place = f"behind {key}" if key else "before the first flag"
        running.note(f"{words} {place} of no flag, which SGLang would refuse: left out.")
    for key, value in args.items():
        if isinstance(value, str) and _REFERENCE.search(value):
            running.note(f"{key} {_REFERS}")
        for source, target in running.mounts:
            if isinstance(value, str) and (value == target or value.startswith(target.rstrip("/") + "/")):
                path = source.rstrip("/") + value[len(target.rstrip("/")) :]
                running.note(f"{key} {value} is a path in the container; on the host it is {path}.")
    if running.gpus is not None:
        running.note(f"The server was given {running.gpus} GPU{'' if running.gpus == 1 else 's'}.")


def _note_environment(env: t.Mapping[str, str], secret_env: t.Sequence[str], running: Running) -> None:
    for key in secret_env:
        running.note(f"The value of {key} is or may be a secret and is not repeated; set it from a file or a lookup.")
    for key, value in env.items():
        if key in _OLD_PLACES:
            running.note(f"{key} names places of the old installation; take it out unless the new one needs it.")
        elif _REFERENCE.search(value):
            running.note(f"{key} {_REFERS}")


def _yaml(name: str, value: t.Any) -> str:
    # Imported here: only the controller writes inventories, and hosts need no PyYAML.
    import yaml

    class Dumper(yaml.SafeDumper):
        """Plain texts, also of values that Ansible has marked; what Jinja would take for its own is marked unsafe."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, one: str) -> yaml.Node:
        if _JINJA.search(one):
            return dumper.represent_scalar("!unsafe", str(one), style='"')
        return dumper.represent_str(str(one))

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(str, text)
    Dumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)
    Dumper.add_multi_representer(list, yaml.SafeDumper.represent_list)
    written: str = yaml.dump({name: value}, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return written


def _comments(variable: str, keys: t.Iterable[str]) -> str:
    instead = (
        "set it from a file or a lookup" if variable == "sglang_server_env" else "the plan wants none in this mapping"
    )
    return "".join(f"  # {key}: a secret, not repeated here; {instead}\n" for key in keys)
