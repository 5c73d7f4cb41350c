# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Releases of one service: each deployed state in a numbered directory, and which of them runs and ran before.

    HOME/releases/7/unit, environment, plan.json   what was deployed; never changed
    HOME/releases/7/gate.json                      what the server must show to be accepted
    HOME/releases/7/secret_args.yaml               server arguments that are secrets, where there are any
    HOME/releases/7/started, accepted              what became of it
    HOME/current, HOME/previous                    symbolic links, replaced by a rename
    HOME/evidence/TIME/                            what is known of a start that failed

HOME and everything in it that is named here belongs to root: the service must not be able to write its own unit.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import typing as t
from pathlib import Path

from .systemd import read_environment

#: Stands in a unit's text for the directory of the release that the unit belongs to.
PLACE = "@release@"
#: The file of secret server arguments in a release: a configuration file as SGLang's --config takes it.
SECRET_ARGS = "secret_args.yaml"
_STAGING = ".staging"


@dataclasses.dataclass(frozen=True)
class Content:
    """What makes a release. ``unit`` has PLACE in the place of the directory, so that it can be compared.

    ``gate`` are the arguments of server_ready. They are no part of what runs, so other ones make no other release.
    """

    unit: str
    environment: str
    plan: t.Mapping[str, t.Any]
    secret_args: str = ""
    gate: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict, compare=False)

    def hidden(self) -> dict[str, str]:
        """The values that are shown nowhere, by name: those of the environment and the secret arguments."""
        return {**read_environment(self.environment), **json.loads(self.secret_args or "{}")}


class Releases:
    """The releases below one directory."""

    def __init__(self, home: Path) -> None:
        self.home = home

    # ---- what there is --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """All complete releases, the oldest first."""
        folder = self.home / "releases"
        return sorted(int(one.name) for one in folder.iterdir() if one.name.isdigit()) if folder.is_dir() else []

    def folder(self, number: int) -> Path:
        """Where a release is."""
        return self.home / "releases" / str(number)

    @property
    def current(self) -> int | None:
        """The release whose unit is installed."""
        return self._pointer("current")

    @property
    def previous(self) -> int | None:
        """The accepted release before the current one."""
        return self._pointer("previous")

    def number_for(self, content: Content) -> int:
        """The number of the release that is staged next. What a run staged and could not finish is taken again."""
        newest = max(self.numbers(), default=0)
        return newest if newest and self.content(newest) == content else newest + 1

    def unit(self, number: int) -> str:
        """The text of a release's unit as it is installed."""
        return (self.folder(number) / "unit").read_text(encoding="utf-8")

    def content(self, number: int) -> Content:
        """What a release is made of.

        :raises OSError: a file cannot be read.
        :raises ValueError: plan.json is none.
        """
        folder = self.folder(number)
        secret_args = folder / SECRET_ARGS
        return Content(
            self.unit(number).replace(str(folder), PLACE),
            (folder / "environment").read_text(encoding="utf-8"),
            json.loads((folder / "plan.json").read_text(encoding="utf-8")),
            secret_args.read_text(encoding="utf-8") if secret_args.exists() else "",
            json.loads((folder / "gate.json").read_text(encoding="utf-8")),
        )

    def gate(self, number: int, content: Content | None = None) -> dict[str, t.Any]:
        """The arguments of server_ready for a release, its directory put in.

        :param content: that of the release, if it is known already.
        :raises OSError, ValueError: a file of the release cannot be read.
        """
        text = json.dumps((content or self.content(number)).gate)
        gate: dict[str, t.Any] = json.loads(text.replace(PLACE, str(self.folder(number))))
        return gate

    def note(self, number: int, name: str) -> dict[str, t.Any] | None:
        """What was noted of a release under ``started`` or ``accepted``; None where nothing was."""
        try:
            noted: dict[str, t.Any] = json.loads((self.folder(number) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return noted

    def is_accepted(self, number: int) -> bool:
        """Whether a release has passed the gate since it was started last."""
        accepted, started = self.note(number, "accepted"), self.note(number, "started")
        return accepted is not None and started is not None and bool(accepted["time"] >= started["time"])

    def fallback(self, number: int | None) -> int | None:
        """The release that was accepted last, ``number`` aside, of those that could run."""
        accepted = [
            (note["time"], one)
            for one in self.numbers()
            if one != number and (note := self.note(one, "accepted")) and not self.lacks(one)
        ]
        return max(accepted)[1] if accepted else None

    def lacks(self, number: int) -> list[str]:
        """What a release needs and the host has no more: its engine, a model's snapshot.

        :raises OSError, ValueError: its plan cannot be read.
        """
        return missing(self.content(number).plan)

    def rendered(self, number: int, content: Content) -> str:
        """The unit's text for a release of that number."""
        return content.unit.replace(PLACE, str(self.folder(number)))

    # ---- changes --------------------------------------------------------------------------------------

    def stage(self, content: Content) -> int:
        """Write a release and give its number. What an interrupted call left is removed."""
        number = self.number_for(content)
        folder = self.folder(number)
        if folder.is_dir():
            self.write_gate(number, content.gate)
            return number
        staging = folder.with_name(_STAGING)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True, mode=0o755)
        write(staging / "unit", self.rendered(number, content), 0o644)
        write(staging / "environment", content.environment, 0o600)
        if content.secret_args:
            write(staging / SECRET_ARGS, content.secret_args, 0o600)
        write(staging / "plan.json", _json(content.plan), 0o644)
        write(staging / "gate.json", _json(content.gate), 0o644)
        staging.rename(folder)
        sync(folder.parent)
        return number

    def write_gate(self, number: int, gate: t.Mapping[str, t.Any]) -> None:
        """Set what a release must show from now on."""
        write(self.folder(number) / "gate.json", _json(gate), 0o644)

    def remove(self, number: int) -> None:
        """Remove a release that never ran."""
        shutil.rmtree(self.folder(number))

    def point_at(self, number: int) -> None:
        """Make a release the current one. The previous one is what was accepted last before it."""
        fallback = self.fallback(number)
        if fallback is not None:
            self._point("previous", fallback)
        else:
            (self.home / "previous").unlink(missing_ok=True)
        self._point("current", number)

    def write_note(self, number: int, name: str, **facts: t.Any) -> None:
        """Note what became of a release, with the time."""
        write(self.folder(number) / name, _json({"time": utc_now(), **facts}), 0o644)

    def forget_note(self, number: int, name: str) -> None:
        """Remove a note."""
        (self.folder(number) / name).unlink(missing_ok=True)

    def prune(self, keep: int) -> list[int]:
        """Remove the oldest releases beyond ``keep``, and give their numbers. Current and previous always stay."""
        numbers = self.numbers()
        old = [one for one in numbers[: max(len(numbers) - keep, 0)] if one not in (self.current, self.previous)]
        for one in old:
            shutil.rmtree(self.folder(one))
        return old

    def _pointer(self, name: str) -> int | None:
        try:
            number = Path(os.readlink(self.home / name)).name
        except OSError:
            return None
        return int(number) if number.isdigit() and self.folder(int(number)).is_dir() else None

    def _point(self, name: str, number: int) -> None:
        new = self.home / f".{name}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(f"releases/{number}")
        new.replace(self.home / name)
        sync(self.home)


def missing(plan: t.Mapping[str, t.Any]) -> list[str]:
    """What a plan needs and the host does not have: its engine, a model's snapshot."""
    needed = [plan.get("engine_path"), *plan.get("read_only_paths", [])]
    return [path for path in needed if path and not os.path.exists(path)]


def differences(before: Content | None, after: Content, unit_path: str) -> list[dict[str, str]]:
    """What differs, for ``--diff``: the unit, the command line word by word, of all else the names."""
    old_argv, new_argv = (_lines(one.plan.get("argv", [])) if one else "" for one in (before, after))
    old_names, new_names = _names(*(read_environment(one.environment) if one else {} for one in (before, after)))
    old_secrets, new_secrets = _names(*(json.loads(one.secret_args or "{}") if one else {} for one in (before, after)))
    parts = (
        (unit_path, before.unit if before else "", after.unit),
        ("command line", old_argv, new_argv),
        ("names in the environment", old_names, new_names),
        ("names of the secret arguments", old_secrets, new_secrets),
    )
    return [
        {"before_header": header, "after_header": header, "before": old, "after": new}
        for header, old, new in parts
        if old != new
    ]


def _json(document: t.Mapping[str, t.Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _lines(words: t.Iterable[t.Any]) -> str:
    return "".join(f"{word}\n" for word in words)


def _names(old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any]) -> tuple[str, str]:
    changed = {name for name in old if name in new and old[name] != new[name]}
    return _lines(sorted(old)), _lines(f"{name} (another value)" if name in changed else name for name in sorted(new))


def utc_now() -> str:
    """The time, such that later times are greater texts."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


def write(path: Path, text: str, mode: int) -> None:
    """Write a file whole or not at all, with that mode from its first moment."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Have the names in a directory survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
