# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Make a lock: what a Hub says of a repository, proved where it can be, and refused whole where anything is wrong."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import posixpath
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store import safetensors
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import ErrorClass, StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.hub_api import HubApi
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import (
    FORMAT,
    git_sha1,
    is_commit,
    is_number,
    is_repo,
    is_sha256,
    parse_lock,
    path_problem,
)

#: Files that an engine may unpickle, which runs whatever code is in them.
PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")

_INDEX = ".safetensors.index.json"
_SHARD = re.compile(r"(?P<name>.+)-(?P<number>\d+)-of-(?P<total>\d+)\.safetensors\Z")
# The Hub keeps nothing larger than 10 MB in git; an index of a large model is a large file of some 20 MB.
_LARGEST_READ = 64 << 20
# Holds the whole header of most files, so that one request is enough.
_FIRST_RANGE = 64 << 10
_AT_ONCE = 4
# Which class a repository with several problems has: what the operator has to look at first.
_GRAVITY: tuple[ErrorClass, ...] = ("corrupt_source", "auth", "lock_invalid")


@dataclass(frozen=True)
class Order:
    """What to lock.

    :param revision: branch, tag or commit.
    :param accept_pickle: paths of pickle files that may be in the lock.
    :param tensors: whether to read the headers of the safetensors files.
    """

    repo: str
    revision: str
    accept_pickle: frozenset[str] = frozenset()
    tensors: bool = False


@dataclass(frozen=True)
class MadeLock:
    """The lock document, and what is odd about the repository but no reason to refuse it."""

    document: dict[str, t.Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _TreeFile:
    """A file as the tree has it: a large one by its sha256, any other by its git object id."""

    path: str
    size: int
    sha256: str | None
    git_sha1: str | None


def make_lock(hub: HubApi, order: Order) -> MadeLock:
    """Lock one revision of a repository.

    :raises StoreError: the Hub did not answer, or the repository cannot be locked; the latter names every problem.
    """
    if not is_repo(order.repo):
        raise StoreError("lock_invalid", f"{order.repo!r} is no Hub name.", "Write it as org/name.")
    commit = hub.commit(order.repo, order.revision)
    return _Maker(hub, order, commit).make()


class _Maker:
    def __init__(self, hub: HubApi, order: Order, commit: str) -> None:
        self._hub = hub
        self._order = order
        self._commit = commit
        self._problems: list[tuple[ErrorClass, str]] = []
        self._warnings: list[str] = []

    def make(self) -> MadeLock:
        files = [file for entry in self._hub.tree(self._order.repo, self._commit) if (file := self._file(entry))]
        self._check_pickles(files)
        contents = self._read_small(files)
        facts: dict[str, t.Any] = {"config": self._config(contents.get("config.json"))}
        for file in files:
            if file.path.endswith(_INDEX) and file.path in contents:
                self._check_index(file.path, contents[file.path], files)
        self._check_shard_numbers(files)
        if self._order.tensors:
            facts["tensors"] = self._tensors([file for file in files if file.path.endswith(safetensors.SUFFIX)])
        document = {
            "format": FORMAT,
            "repo": self._order.repo,
            "repo_type": "model",
            "revision": self._commit,
            "files": [_entry(file, contents) for file in sorted(files, key=lambda file: file.path)],
            "total_size": sum(file.size for file in files),
            "facts": facts,
        }
        self._check_whole(document)
        if self._problems:
            raise self._refusal()
        return MadeLock(document, tuple(self._warnings))

    def _bad(self, error_class: ErrorClass, problem: str) -> None:
        self._problems.append((error_class, problem))

    # ---- the tree --------------------------------------------------------------------------------

    def _file(self, entry: t.Any) -> _TreeFile | None:
        """One entry of the tree, None for a folder and for one that cannot be locked."""
        if not isinstance(entry, dict):
            self._bad("corrupt_source", f"the tree has an entry that is no mapping: {entry!r}")
            return None
        if entry.get("type") == "directory":
            return None
        path, large = entry.get("path"), entry.get("lfs")
        unsafe = path_problem(path)
        if unsafe:
            self._bad("lock_invalid", f"path {path!r} {unsafe}")
            return None
        if entry.get("type") != "file":
            self._bad("lock_invalid", f"{path} is a {entry.get('type')!r}, not a file")
            return None
        source = large if isinstance(large, dict) else entry
        size: t.Any = source.get("size")
        digest = source.get("oid")
        if any(_is_hidden(value) for value in (digest, entry.get("xetHash"))):
            self._bad("auth", f"{path} has a redacted hash")
        elif not is_number(size) or size < 0 or entry.get("size") != size:
            self._bad("corrupt_source", f"{path} has the size {entry.get('size')!r} in the tree, and {size!r}")
        elif not (is_commit(digest) if source is entry else is_sha256(digest)):
            self._bad("corrupt_source", f"{path} has no hash in the tree but {digest!r}")
        elif source is entry:
            return _TreeFile(str(path), size, None, digest)
        else:
            return _TreeFile(str(path), size, digest, None)
        return None

    def _check_pickles(self, files: t.Sequence[_TreeFile]) -> None:
        for file in files:
            if file.path.lower().endswith(PICKLES) and file.path not in self._order.accept_pickle:
                self._bad("lock_invalid", f"{file.path} is a pickle, which runs code, and is not in accept_pickle")

    # ---- small files: fetched and proved ---------------------------------------------------------

    def _read_small(self, files: t.Sequence[_TreeFile]) -> dict[str, bytes]:
        """The files in git, and the large ones that the lock itself needs, each proved by the hash in the tree."""
        wanted = []
        for file in files:
            if file.git_sha1 is None and file.path != "config.json" and not file.path.endswith(_INDEX):
                continue
            if file.size > _LARGEST_READ:
                self._bad("lock_invalid", f"{file.path} has {file.size} bytes, too many to read")
                continue
            wanted.append(file)
        contents = {}
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            pending = [(file, pool.submit(self._read_one, file)) for file in wanted]
            try:
                for file, future in pending:
                    contents[file.path] = future.result()
                    self._prove(file, contents[file.path])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return contents

    def _read_one(self, file: _TreeFile) -> bytes:
        return self._hub.content(self._order.repo, self._commit, file.path, file.size)

    def _prove(self, file: _TreeFile, content: bytes) -> None:
        if len(content) != file.size:
            sent = f"{len(content)} bytes" if len(content) < file.size else "more bytes"
            self._bad("corrupt_source", f"{file.path} was sent with {sent}, the tree says {file.size}")
            return
        kind, told = ("sha256", file.sha256) if file.sha256 else ("git sha1", file.git_sha1)
        got = hashlib.sha256(content).hexdigest() if file.sha256 else git_sha1(content)
        if got != told:
            self._bad("corrupt_source", f"{file.path} was sent with {kind} {got}, the tree says {told}")

    def _config(self, content: bytes | None) -> dict[str, t.Any]:
        if content is None:
            self._warnings.append(f"{self._order.repo} has no config.json: the plan knows nothing of the model.")
            return {}
        config = _json_mapping(content)
        if config is None:
            self._bad("lock_invalid", "config.json is no JSON mapping")
            return {}
        return config

    # ---- shards ----------------------------------------------------------------------------------

    def _check_index(self, path: str, content: bytes, files: t.Sequence[_TreeFile]) -> None:
        """Every shard that the index names has to be there. Its total is told by many tools wrongly, so only a hint."""
        index = _json_mapping(content)
        weights = index.get("weight_map") if index else None
        if not isinstance(weights, dict) or not all(isinstance(shard, str) for shard in weights.values()):
            self._bad("lock_invalid", f"{path} is no index: it has no weight_map of names to files")
            return
        sizes = {file.path: file.size for file in files}
        shards = {posixpath.join(posixpath.dirname(path), shard) for shard in weights.values()}
        missing = sorted(shards - set(sizes))
        if missing:
            self._bad("lock_invalid", f"{path} names {', '.join(missing)}, not in the repository")
            return
        metadata = index.get("metadata") if index else None
        told = metadata.get("total_size") if isinstance(metadata, dict) else None
        have = sum(sizes[shard] for shard in shards)
        if isinstance(told, (int, float)) and told > have:
            self._warnings.append(f"{path} tells of {told} bytes of tensors; its files have {have} bytes.")

    def _check_shard_numbers(self, files: t.Sequence[_TreeFile]) -> None:
        """Files named as parts of a total have to be that many."""
        numbers: dict[tuple[str, str], set[int]] = {}
        for file in files:
            shard = _SHARD.match(file.path)
            if shard:
                numbers.setdefault((shard["name"], shard["total"]), set()).add(int(shard["number"]))
        for (name, total), have in sorted(numbers.items()):
            if len(have) != int(total):
                self._bad("lock_invalid", f"{name}-*-of-{total}.safetensors are {len(have)} files, not {int(total)}")

    def _tensors(self, files: t.Sequence[_TreeFile]) -> safetensors.Tensors:
        """The tensors of every safetensors file, read from the beginnings of the files."""
        found: safetensors.Tensors = {}
        for file in files:
            try:
                found.update(self._tensors_of(file))
            except ValueError as problem:
                self._bad("lock_invalid", f"{file.path} {problem}")
        return found

    def _tensors_of(self, file: _TreeFile) -> safetensors.Tensors:
        repo, commit = self._order.repo, self._commit
        start = self._hub.beginning(repo, commit, file.path, file.size, _FIRST_RANGE) if file.size else b""
        end = safetensors.PREFIX + safetensors.header_length(start, file.size)
        if end > len(start):
            start = self._hub.beginning(repo, commit, file.path, file.size, end)
        return safetensors.read_header(start[safetensors.PREFIX : end], file.size)

    # ---- all of it -------------------------------------------------------------------------------

    def _check_whole(self, document: dict[str, t.Any]) -> None:
        """What can only be said of all files together: duplicates, collisions; and that the facts can be written."""
        try:
            json.dumps(document["facts"], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            self._bad("lock_invalid", "config.json or a tensor's name holds what cannot be written as UTF-8")
            return
        if not document["files"] and self._problems:
            return
        try:
            parse_lock(document)
        except StoreError as error:
            for problem in error.facts["problems"]:
                self._bad("lock_invalid", problem)

    def _refusal(self) -> StoreError:
        classes = {error_class for error_class, _problem in self._problems}
        error_class = next(one for one in _GRAVITY if one in classes)
        problems = [problem for _class, problem in self._problems]
        remedy = {
            "corrupt_source": "Ask the Hub itself, without a proxy or mirror in between.",
            "auth": "The Hub hides hashes from those who may not read the repository: accept its terms, and name a"
            " token that may read it (token_file).",
            "lock_invalid": "Lock another revision or repository; a pickle file can be named in accept_pickle.",
        }[error_class]
        return StoreError(
            error_class,
            f"{self._order.repo} at {self._commit} cannot be locked: {'; '.join(problems)}.",
            remedy,
            source=self._hub.name,
            problems=problems,
        )


def _entry(file: _TreeFile, contents: t.Mapping[str, bytes]) -> dict[str, t.Any]:
    """The lock's entry of a file. One that was not read for its size has no proof, and the lock is refused anyway."""
    if file.sha256 is not None:
        return {"path": file.path, "size": file.size, "sha256": file.sha256}
    sha256 = hashlib.sha256(contents.get(file.path, b"")).hexdigest()
    return {"path": file.path, "size": file.size, "sha256": sha256, "git_sha1": file.git_sha1}


def _is_hidden(digest: t.Any) -> bool:
    return isinstance(digest, str) and "*" in digest


def _json_mapping(content: bytes) -> dict[str, t.Any] | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
