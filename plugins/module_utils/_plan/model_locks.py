# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The models that an inventory names, each once, with where its lock belongs and which revision it is to lock."""

from __future__ import annotations

import dataclasses
import typing as t

from .._sglang.models import DRAFTERS, TARGETS, from_catalogue
from .._store.errors import StoreError
from .host import DEFAULTS, model_entry, model_lock_path, model_problem, read_model_lock

#: Host variables that only the making of locks reads: revision by repository, accepted pickle files by repository.
REVISIONS = "sglang_model_revisions"
ACCEPT_PICKLE = "sglang_model_accept_pickle"

_KINDS = (("sglang_model_target", TARGETS), ("sglang_model_drafter", DRAFTERS))
_DEFAULT_REVISION = "main"


@dataclasses.dataclass(frozen=True)
class ModelToLock:
    """One lock to make or to renew, with the options of the module model_lock."""

    repo: str
    revision: str
    dest: str
    tensors: bool
    accept_pickle: tuple[str, ...]

    def as_dict(self) -> dict[str, t.Any]:
        return {**dataclasses.asdict(self), "accept_pickle": list(self.accept_pickle)}


class ModelsToLockProblem(ValueError):
    """The hosts' variables do not say what to lock; the text has every reason."""


def models_to_lock(hosts: t.Iterable[t.Mapping[str, t.Any]]) -> list[ModelToLock]:
    """Every lock that some hosts need, once, sorted by path.

    A revision that is asked for counts first, then that of the lock that is there, so that no lock moves unasked, then
    the catalogue's, then main. Tensors are for drafters: the plan compares them with the target.

    :param hosts: each host's variables.
    :raises ModelsToLockProblem: a variable cannot be used, or hosts want different things in one file.
    """
    found: dict[str, ModelToLock] = {}
    problems: list[str] = []
    for variables in hosts:
        for variable, kind in _KINDS:
            written = variables.get(variable)
            if written is None:
                continue
            try:
                model = _model(variables, variable, kind, written)
                found[model.dest] = _both(found[model.dest], model) if model.dest in found else model
            except ValueError as problem:
                problems.append(str(problem))
    if problems:
        raise ModelsToLockProblem("; ".join(dict.fromkeys(problems)))
    return [found[dest] for dest in sorted(found)]


def _model(variables: t.Mapping[str, t.Any], variable: str, kind: str, written: t.Any) -> ModelToLock:
    problem = model_problem(written)
    if problem:
        raise ValueError(f"{variable} {problem}")
    entry = model_entry(written)
    repo: str = entry["repo"]
    lock_dir = variables.get("sglang_model_lock_dir") or DEFAULTS["sglang_model_lock_dir"]
    dest = model_lock_path(entry, str(lock_dir), variables.get("inventory_dir"))
    revision = _of_repo(variables, REVISIONS, repo)
    if revision is None:
        revision = _locked_revision(dest, repo)
    elif not isinstance(revision, str) or not revision:
        raise ValueError(f"{REVISIONS} has {revision!r} for {repo}; write a branch, tag or commit in quotes")
    if revision is None:
        known = from_catalogue(kind, repo, variables.get("sglang_plan_models"))
        revision = known.revision if known else None
    accepted = _of_repo(variables, ACCEPT_PICKLE, repo) or []
    if not isinstance(accepted, (list, tuple)):
        raise ValueError(f"{ACCEPT_PICKLE} has {accepted!r} for {repo}; it is a list of paths")
    paths = tuple(sorted({str(path) for path in accepted}))
    return ModelToLock(repo, str(revision or _DEFAULT_REVISION), dest, kind == DRAFTERS, paths)


def _of_repo(variables: t.Mapping[str, t.Any], name: str, repo: str) -> t.Any:
    by_repo = variables.get(name) or {}
    if not isinstance(by_repo, t.Mapping):
        raise ValueError(f"{name} is {by_repo!r}; it is a mapping by repository")
    return by_repo.get(repo)


def _locked_revision(path: str, repo: str) -> str | None:
    """The commit that a lock file has now, None where there is no file."""
    try:
        lock, _facts = read_model_lock(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, StoreError) as problem:
        raise ValueError(f"{path}: {problem} Name a revision of {repo} in {REVISIONS} to make it anew") from None
    return lock.revision


def _both(one: ModelToLock, other: ModelToLock) -> ModelToLock:
    """What satisfies two hosts, or a target and a drafter, with one lock file."""
    if (one.repo, one.revision) != (other.repo, other.revision):
        wanted = " and ".join(f"{model.repo} at {model.revision}" for model in (one, other))
        raise ValueError(f"{one.dest} is wanted for {wanted}")
    paths = tuple(sorted({*one.accept_pickle, *other.accept_pickle}))
    return dataclasses.replace(one, tensors=one.tensors or other.tensors, accept_pickle=paths)
