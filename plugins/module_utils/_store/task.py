# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One call of model_snapshot from its options to its result, whichever process it runs in."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import rfc3339
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore, Policy
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Proving, Survey

_DAY = 86400.0
Params = t.Mapping[str, t.Any]
Result = dict[str, t.Any]


class Task:
    """What the operator asked for.

    :param params: the module's options.
    :param hide: is told every secret, so that it is shown nowhere.
    """

    def __init__(self, params: Params, lock: ModelLock, check_mode: bool, hide: t.Callable[[str], None]) -> None:
        self.lock = lock
        self.store = ModelStore(params["store"], lock, _policy(params))
        self._params = params
        self._check_mode = check_mode
        self._hide = hide

    def is_done(self) -> bool:
        """Whether nothing is to be fetched, read or published, as far as can be told without reading a file."""
        return self._params["verify"] == "stamp" and self.store.look(stat_only=True).complete

    def run(self) -> Result:
        """Reach the state, or predict it. The result says whether that ``failed``."""
        started = time.monotonic()
        store, lock, params = self.store, self.lock, self._params
        try:
            changed = self._reach_state()
        except StoreError as error:
            more = {**error.facts, **_facts(store, lock, started), "error_class": error.error_class}
            return {"failed": True, "msg": str(error), "changed": _has_written(store), **more}
        except (OSError, ValueError) as error:
            said = f"{lock.repo} in {params['store']}: {error}"
            return {"failed": True, "msg": said, "changed": _has_written(store), **_facts(store, lock, started)}
        result = _facts(store, lock, started)
        complete = params["state"] != "absent" and not (changed and self._check_mode)
        result["verified"] = params["verify"] if complete else None
        result["oldest_verification"] = rfc3339(store.oldest_proof) if complete else None
        if store.taken_over is not None:
            taken_over = f"The stale lease on {params['store']} was taken over from {dict(store.taken_over)}."
            result["warnings"] = [taken_over]
        header = f"{lock.repo} in {params['store']}"
        return {
            "failed": False,
            "changed": changed,
            "msg": _summary(lock, params["state"], result, changed, self._check_mode),
            "diff": {"before_header": header, "after_header": header, "before": store.before, "after": store.after},
            **result,
        }

    def _reach_state(self) -> bool:
        """Do what ``state`` says, or predict it. Returns whether something changed."""
        params, store = self._params, self.store
        if params["state"] == "verified":
            store.verify(record=not self._check_mode)
            return False
        if params["state"] == "absent":
            return store.make_absent(self._check_mode)
        # not at the top, as in store.py
        from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
        from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources, read_token

        token = None if self._check_mode else read_token(params["token"], params["token_file"])
        if token:
            self._hide(token)
        sources = open_sources(params["sources"], self.lock, token, params["stall_timeout"], store.tally)
        if self._check_mode:
            return store.check_present()
        patience = Patience(params["retries"], min_rate=params["min_rate"], rate_window=params["stall_timeout"])
        return store.make_present(sources, patience)


def _policy(params: Params) -> Policy:
    """How the operator wants the store to be kept."""
    days = params["verify_age_max"]
    return Policy(
        proving=Proving(params["verify"], None if days is None else days * _DAY, params["workers"]),
        keep_revisions=params["keep_revisions"],
        reserve_bytes=params["reserve_bytes"],
        wait_lock=params["wait_lock"],
    )


def _facts(store: ModelStore, lock: ModelLock, started: float) -> dict[str, t.Any]:
    """The result values that a success and a failure share."""
    tally = store.tally
    result: dict[str, t.Any] = {
        "path": store.path,
        "revision": lock.revision,
        "lock_digest": lock.digest,
        "previous_revision": store.previous,
        "taken_over": store.taken_over,
        "resumed": sorted(tally.resumed_paths),
        "removed": tally.removed,
        "bytes_freed": tally.bytes_freed,
        "quarantined": sorted(tally.quarantined),
        "bytes_fetched": tally.bytes_fetched,
        "bytes_resumed": tally.bytes_resumed,
        "bytes_hashed": tally.bytes_hashed,
        "requests": tally.requests,
        "retries": tally.retries,
        "source": ", ".join(tally.served_by) or None,
        "seconds": round(time.monotonic() - started, 3),
    }
    if store.found is not None:
        result.update(_file_states(store.found, len(lock.files)), bytes_to_fetch=store.found.bytes_to_fetch)
    if store.space is not None:
        result["space"] = {**dataclasses.asdict(store.space), "enough": store.space.enough}
    return result


def _file_states(found: Survey, files: int) -> dict[str, t.Any]:
    """What was found of each file; ``files`` is their number."""
    begun = [blob for blob in found.wanted if found.have[blob.sha256]]
    partial = [
        {"path": path, "have": found.have[blob.sha256], "size": blob.size} for blob in begun for path in blob.paths
    ]
    not_begun = [blob for blob in found.missing if blob not in begun]
    counts = {
        "missing": len(_all_paths(not_begun)),
        "partial": len(partial),
        "corrupt": len(_all_paths(blob for blob in found.corrupt if blob not in begun)),
        "suspect": len(_all_paths(found.suspect)),
    }
    return {
        "missing": _all_paths(found.missing),
        "partial": sorted(partial, key=lambda entry: str(entry["path"])),
        "corrupt": _all_paths(found.corrupt),
        "suspect": _all_paths(found.suspect),
        "files_state": {"present": files - sum(counts.values()), **counts},
    }


def _has_written(store: ModelStore) -> bool:
    """Whether a failed run has left something new in the store."""
    return bool(store.tally.bytes_fetched or store.tally.quarantined or store.tally.removed)


def _all_paths(blobs: t.Iterable[Blob]) -> list[str]:
    """Every path of some blobs, sorted."""
    return sorted(path for blob in blobs for path in blob.paths)


def _summary(lock: ModelLock, state: str, result: dict[str, t.Any], changed: bool, check_mode: bool) -> str:
    """One line for the operator."""
    if state == "absent":
        done = f"would be removed, {result['bytes_freed']} bytes" if check_mode else "was removed"
        return f"{lock.repo} at {lock.revision} {done if changed else 'is not there'}"
    if not changed:
        return f"{lock.repo} is complete: {len(lock.files)} files, {lock.total_size} bytes"
    files = len(result["missing"]) + len(result["corrupt"])
    if check_mode:
        said = f"{lock.repo} lacks {files} of {len(lock.files)} files, {result['bytes_to_fetch']} bytes to fetch"
        return f"{said}; {len(result['suspect'])} would be read" if result["suspect"] else said
    return f"{lock.repo} published: {files} files were wanted, {result['bytes_fetched']} bytes fetched"
