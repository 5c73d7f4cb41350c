# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A model lock: the files of one revision of one Hub repository, each with its size and sha256.

The lock alone says what a complete model is. Names come from the network into the lock and from the lock onto a
file system, hence a path has to prove itself harmless before anything is done with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
import unicodedata
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

FORMAT = 1
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
# The Hub's rule for names; "--" and ".." are refused apart because the cache layout gives "--" a meaning.
_REPO = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EMPTY = hashlib.sha256().hexdigest()
_MOST_PROBLEMS_SHOWN = 20
# Linux: NAME_MAX, and PATH_MAX less room for the store's own folders.
_LONGEST_NAME = 255
_LONGEST_PATH = 3072


@dataclass(frozen=True)
class LockedFile:
    """One file of the repository: POSIX path relative to its root, size in bytes, lower-case hex digests."""

    path: str
    size: int
    sha256: str
    git_sha1: str | None = None


@dataclass(frozen=True)
class Blob:
    """One content, under every path that has it. Equal files of a repository are one blob."""

    sha256: str
    size: int
    paths: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path by which the blob is asked for and spoken of."""
        return self.paths[0]


@dataclass(frozen=True)
class ModelLock:
    """A lock that passed every check. ``digest`` is the sha256 of its canonical form."""

    repo: str
    revision: str
    files: tuple[LockedFile, ...]
    total_size: int
    digest: str

    def blobs(self) -> tuple[Blob, ...]:
        """The contents to store, largest first, so that parallel workers end together."""
        paths: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for file in self.files:
            paths.setdefault(file.sha256, []).append(file.path)
            sizes[file.sha256] = file.size
        blobs = (Blob(sha256, sizes[sha256], tuple(names)) for sha256, names in paths.items())
        return tuple(sorted(blobs, key=lambda blob: (-blob.size, blob.path)))


def canonical(document: t.Mapping[str, t.Any]) -> str:
    """The one text form of a lock: sorted keys, files sorted by path, two spaces, UTF-8, a newline at the end."""
    ordered = dict(document)
    ordered["files"] = sorted(document["files"], key=lambda entry: entry["path"])
    return json.dumps(ordered, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def parse_lock(document: t.Any) -> ModelLock:
    """Check a lock and read it.

    :param document: the parsed JSON: ``{format: 1, repo, repo_type: model, revision, files, total_size, facts}``.
        Keys beyond these are kept in the digest and otherwise unused.
    :raises StoreError: class ``lock_invalid``, naming every problem that was found.
    """
    if not isinstance(document, dict):
        raise _invalid([f"it is a {type(document).__name__}, not a mapping"])
    problems = _header_problems(document)
    entries = document.get("files")
    files: list[LockedFile] = []
    if not isinstance(entries, list) or not entries:
        problems.append("files is not a list with at least one entry")
    else:
        for number, entry in enumerate(entries):
            found = _entry_problems(number, entry)
            problems += found
            if not found:
                files.append(LockedFile(entry["path"], entry["size"], entry["sha256"], entry.get("git_sha1")))
        problems += _collisions(files)
        total = sum(file.size for file in files)
        if len(files) == len(entries) and document.get("total_size") != total:
            problems.append(f"total_size is {document.get('total_size')!r}, the files add up to {total}")
    if problems:
        raise _invalid(problems)
    return ModelLock(
        repo=document["repo"],
        revision=document["revision"],
        files=tuple(sorted(files, key=lambda file: file.path)),
        total_size=document["total_size"],
        digest=hashlib.sha256(canonical(document).encode(errors="surrogatepass")).hexdigest(),
    )


def path_problem(path: t.Any) -> str | None:
    """Why a path may not be stored, or None when it may."""
    if not isinstance(path, str) or not path:
        return "is not a text"
    if _CONTROL.search(path) or "\\" in path:
        return "holds a control character or a backslash"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "is absolute or has an empty, '.' or '..' part"
    try:
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return "cannot be written as UTF-8"
    if any(len(part) > _LONGEST_NAME for part in encoded) or len(path.encode()) > _LONGEST_PATH:
        return "is longer than a file system takes"
    return None


def is_repo(name: t.Any) -> bool:
    """Whether a name is one that the Hub could have given to a repository."""
    return isinstance(name, str) and _REPO.match(name) is not None and "--" not in name and ".." not in name


def is_commit(revision: t.Any) -> bool:
    """Whether a revision is a whole commit, which never names anything else, and no branch or tag."""
    return _is_hex(_COMMIT, revision)


def is_sha256(digest: t.Any) -> bool:
    """Whether a digest is a whole one in lower case."""
    return _is_hex(_SHA256, digest)


def git_sha1(content: bytes) -> str:
    """The id that git gives to a file with that content."""
    # what git chose long ago, so hosts that allow no sha1 for security have to be told
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _header_problems(document: dict[str, t.Any]) -> list[str]:
    problems = []
    if not is_number(document.get("format")) or document["format"] != FORMAT:
        problems.append(f"format is {document.get('format')!r}, this release reads {FORMAT}")
    if not is_repo(document.get("repo")):
        problems.append(f"repo is {document.get('repo')!r}, not a Hub name such as org/name")
    if document.get("repo_type") != "model":
        problems.append(f"repo_type is {document.get('repo_type')!r}, not 'model'")
    if not is_commit(document.get("revision")):
        problems.append(f"revision is {document.get('revision')!r}, not a commit of 40 lower-case hex digits")
    return problems


def _entry_problems(number: int, entry: t.Any) -> list[str]:
    if not isinstance(entry, dict):
        return [f"files[{number}] is not a mapping"]
    path = entry.get("path")
    problems = []
    unsafe = path_problem(path)
    if unsafe:
        problems.append(f"files[{number}]: path {path!r} {unsafe}")
    if not is_number(entry.get("size")) or entry["size"] < 0:
        problems.append(f"files[{number}] ({path!r}): size is {entry.get('size')!r}, not a number of bytes")
    if not is_sha256(entry.get("sha256")):
        problems.append(f"files[{number}] ({path!r}): sha256 is not 64 lower-case hex digits")
    elif entry.get("size") == 0 and entry["sha256"] != _EMPTY:
        problems.append(f"files[{number}] ({path!r}): size is 0, sha256 is not that of nothing")
    if entry.get("git_sha1") is not None and not _is_hex(_COMMIT, entry["git_sha1"]):
        problems.append(f"files[{number}] ({path!r}): git_sha1 is not 40 lower-case hex digits")
    return problems


def is_number(value: t.Any) -> bool:
    """Whether JSON had a whole number there; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_hex(form: re.Pattern[str], value: t.Any) -> bool:
    return isinstance(value, str) and form.match(value) is not None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _collisions(files: list[LockedFile]) -> list[str]:
    """Paths that are one name on a case-insensitive file system, file paths that are also folders, odd sizes."""
    problems = []
    by_name: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for file in files:
        folded = _folded(file.path)
        if folded in by_name:
            problems.append(f"paths {by_name[folded]!r} and {file.path!r} are one name where case does not count")
        by_name[folded] = file.path
        if sizes.setdefault(file.sha256, file.size) != file.size:
            problems.append(f"sha256 {file.sha256} is given two sizes, {sizes[file.sha256]} and {file.size}")
    for folded, path in by_name.items():
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            parent = by_name.get("/".join(parts[:depth]))
            if parent is not None:
                problems.append(f"path {parent!r} is a file, and a folder in {path!r}")
    return problems


def _invalid(problems: list[str]) -> StoreError:
    shown = "; ".join(problems[:_MOST_PROBLEMS_SHOWN])
    if len(problems) > _MOST_PROBLEMS_SHOWN:
        shown += f"; and {len(problems) - _MOST_PROBLEMS_SHOWN} more"
    return StoreError(
        "lock_invalid",
        f"The model lock cannot be used: {shown}.",
        "Make the lock again from the repository, and review the difference before committing it.",
        problems=problems,
    )
