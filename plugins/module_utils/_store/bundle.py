# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A bundle: everything that a site without internet needs, in one directory that proves itself.

::

    <bundle>/
        bundle.json                what is in it: models and engines with their digests and sizes, and when it was made
        SHA256SUMS                 every other file, in the form of sha256sum
        locks/<org>--<name>.json   the model locks
        models/                    a verified store
        engines/<digest>/          requirements.txt and lock.json of an engine lock
        engines/uv.txt             the lock of uv, with which the hosts build
        wheelhouse/*.whl           the wheels of those locks

The sums say that nothing was damaged on the way. What should have been in the bundle to begin with is said by the locks
of the site, which came another way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.inferops.serving.plugins.module_utils._plan.engine_lock import (
    EngineLock,
    EngineLockProblem,
    read_engine_lock,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, replace_text
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock, parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import wanted_links
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import hash_file
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

FORMAT = 1
LIST = "bundle.json"
SUMS = "SHA256SUMS"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)\Z")
_PIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*==", re.MULTILINE)


@dataclass(frozen=True)
class Wanted:
    """What a bundle shall hold.

    :param locks: model locks as parsed JSON.
    :param engines: digests of engine locks, 12 hex digits each.
    """

    locks: t.Sequence[t.Mapping[str, t.Any]]
    engines: t.Sequence[str]


@dataclass
class Content:
    """What a bundle was found to hold. ``problems`` is empty when it is whole; each names a file or a lock."""

    problems: list[str] = field(default_factory=list)
    sums: dict[str, str] = field(default_factory=dict)
    models: list[ModelLock] = field(default_factory=list)
    engines: list[EngineLock] = field(default_factory=list)
    bytes_hashed: int = 0

    def listing(self) -> dict[str, t.Any]:
        """bundle.json without its date."""
        return {
            "format": FORMAT,
            "models": [
                {
                    "repo": lock.repo,
                    "revision": lock.revision,
                    "lock_digest": lock.digest,
                    "files": len(lock.files),
                    "total_size": lock.total_size,
                }
                for lock in self.models
            ],
            "engines": [
                {"digest": engine.digest, "sglang": engine.sglang, "python": engine.python, "platform": engine.platform}
                for engine in self.engines
            ],
            "wheels": sum(path.startswith("wheelhouse/") for path in self.sums),
        }


def lock_path(repo: str) -> str:
    """Where a bundle keeps the lock of a repository."""
    return f"locks/{repo.replace('/', '--')}.json"


def examine(bundle: str, wanted: Wanted) -> Content:
    """Read every byte of a bundle and compare it with the locks; writes nothing.

    The bundle's own list and sums are not looked at, see :func:`compare_sums`.

    :raises StoreError: class ``lock_invalid``, for a lock among those that are wanted.
    """
    content = Content(models=sorted(map(parse_lock, wanted.locks), key=lambda lock: lock.repo))
    tally = Tally()
    for path in _files(bundle):
        content.sums[path] = hash_file(os.path.join(bundle, path), tally)[0]
    content.bytes_hashed = tally.bytes_hashed
    expected: set[str] = set()
    for lock in content.models:
        expected |= _check_model(bundle, lock, content)
    expected |= _check_engines(bundle, wanted.engines, content)
    content.problems += [
        f"{path} belongs to no lock" for path in sorted(set(content.sums) - expected) if path not in (LIST, SUMS)
    ]
    return content


def _files(bundle: str) -> list[str]:
    """Every file of a bundle, links left out. Names with a dot in front are the store's own notes on this disk."""
    found = []
    for parent, folders, files in os.walk(bundle):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.join(parent, name) for name in files if not name.startswith(".")]
        found += [os.path.relpath(path, bundle) for path in paths if not os.path.islink(path)]
    return sorted(found)


def _check_model(bundle: str, lock: ModelLock, content: Content) -> set[str]:
    """Compare one model with its lock; gives the paths that belong to it."""
    own = lock_path(lock.repo)
    if own not in content.sums:
        content.problems.append(f"{own} is missing")
    elif _lock_digest(os.path.join(bundle, own)) != lock.digest:
        content.problems.append(f"{own} is not the lock of this site, whose digest is {lock.digest[:12]}")
    inside = ModelDir("models", lock.repo)
    expected = {own, inside.main}
    for blob in lock.blobs():
        path = inside.blob(blob.sha256)
        expected.add(path)
        if path not in content.sums:
            content.problems.append(f"{path} ({lock.repo} {blob.path}) is missing")
        elif content.sums[path] != blob.sha256:
            content.problems.append(f"{path} ({lock.repo} {blob.path}) is damaged")
    snapshot = os.path.join(bundle, inside.snapshot(lock.revision))
    for path, target in wanted_links(lock).items():
        place = os.path.join(snapshot, path)
        if not os.path.islink(place) or os.readlink(place) != target:
            content.problems.append(f"{os.path.relpath(place, bundle)} is not the link to its content")
    return expected


def _lock_digest(path: str) -> str | None:
    """The digest of a lock file, None for what is no lock."""
    try:
        with open(path, encoding="utf-8") as stream:
            return parse_lock(json.load(stream)).digest
    except (OSError, ValueError, StoreError):
        return None


def _check_engines(bundle: str, digests: t.Sequence[str], content: Content) -> set[str]:
    """Compare the wheelhouse with the engine locks; gives the paths that belong to them."""
    if not digests:
        return set()
    expected = {"engines/uv.txt"}
    allowed: set[str] = set()
    for digest in sorted(set(digests)):
        folder = f"engines/{digest}"
        files = {f"{folder}/requirements.txt", f"{folder}/lock.json"}
        expected |= files
        absent = [f"{path} is missing" for path in sorted(files - set(content.sums))]
        if absent:
            content.problems += absent
            continue
        try:
            engine = read_engine_lock(os.path.join(bundle, folder))
        except EngineLockProblem as problem:
            content.problems.append(f"{folder} is no engine lock: {problem}")
            continue
        if engine.digest != digest:
            content.problems.append(f"{folder} is not the lock with that digest, it is {engine.digest}")
            continue
        content.engines.append(engine)
        pins = _hashes_by_pin(os.path.join(bundle, folder, "requirements.txt"))
        allowed |= _check_pins(pins, folder, content)
    uv_pins = _hashes_by_pin(os.path.join(bundle, "engines/uv.txt"))
    if uv_pins:
        allowed |= _check_pins(uv_pins, "engines/uv.txt", content)
    else:
        content.problems.append("engines/uv.txt is missing")
    for path in content.sums:
        if path.startswith("wheelhouse/") and content.sums[path] in allowed:
            expected.add(path)
    return expected


def _check_pins(pins: t.Mapping[str, t.Sequence[str]], lock: str, content: Content) -> set[str]:
    """Look for a wheel for every pin of a lock; gives the digests that the lock allows."""
    have = {digest for path, digest in content.sums.items() if path.startswith("wheelhouse/")}
    content.problems += [
        f"wheelhouse has no wheel of {name}, which {lock} names" for name, some in pins.items() if not have & set(some)
    ]
    return {digest for some in pins.values() for digest in some}


def _hashes_by_pin(requirements: str) -> dict[str, list[str]]:
    """``{name==version: digests}`` of a requirements file with hashes; empty when there is no such file."""
    try:
        with open(requirements, encoding="utf-8") as stream:
            text = stream.read().replace("\\\n", " ")
    except FileNotFoundError:
        return {}
    lines = [line for line in text.splitlines() if _PIN.match(line)]
    return {line.split()[0]: _HASH.findall(line) for line in lines}


def compare_sums(bundle: str, content: Content) -> list[str]:
    """What differs between a bundle's files and its SHA256SUMS, and what its list says otherwise than the locks."""
    try:
        with open(os.path.join(bundle, SUMS), encoding="utf-8") as stream:
            lines = stream.read().splitlines()
        with open(os.path.join(bundle, LIST), encoding="utf-8") as stream:
            listed = json.load(stream)
    except (OSError, ValueError) as problem:
        return [f"{SUMS} or {LIST} cannot be read, so the bundle is not finished: {problem}"]
    matches = [_SUM.match(line) for line in lines]
    if None in matches or not isinstance(listed, dict):
        return [f"{SUMS} or {LIST} is damaged"]
    sums = {match[2]: match[1] for match in matches if match}
    found = {path: digest for path, digest in content.sums.items() if path != SUMS}
    problems = [f"{path} is missing" for path in sorted(set(sums) - set(found))]
    problems += [f"{path} is not listed in {SUMS}" for path in sorted(set(found) - set(sums))]
    problems += [f"{path} is damaged" for path in sorted(set(sums) & set(found)) if sums[path] != found[path]]
    listed.pop("made", None)
    if not problems and not content.problems and listed != content.listing():
        problems.append(f"{LIST} is not the list of what is there")
    return problems


def seal(bundle: str, content: Content) -> None:
    """Write the list and the sums of a bundle that was found whole."""
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = json.dumps({**content.listing(), "made": made}, indent=2, sort_keys=True) + "\n"
    replace_text(os.path.join(bundle, LIST), text)
    sums = {**content.sums, LIST: hashlib.sha256(text.encode()).hexdigest()}
    sums.pop(SUMS, None)
    replace_text(os.path.join(bundle, SUMS), "".join(f"{sums[path]}  {path}\n" for path in sorted(sums)))


def is_sealed(bundle: str, content: Content) -> bool:
    """Whether the list and the sums are those of the content, whenever they were made."""
    return not compare_sums(bundle, content)


def refusal(bundle: str, problems: t.Sequence[str]) -> StoreError:
    """The error for a bundle that is not whole."""
    return StoreError(
        "corrupt_source",
        f"The bundle {bundle} is refused: {'; '.join(problems)}.",
        "Copy the bundle again from where it was made, or make it again with the locks of this site.",
        problems=list(problems),
    )
