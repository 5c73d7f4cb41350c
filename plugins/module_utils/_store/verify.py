# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Prove what a store has published, without Ansible: what the timer of the role sglang_model runs.

Every file is read from the disk. Nothing is fetched, moved or removed but the stamp of a file that is found bad, so
that the next run of model_snapshot replaces that file. The role installs this module and what it imports.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, replace_text
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock, parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.proofs import record
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import current_revision
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import read_stamp, rfc3339
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Proving, Survey, survey
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

FORMAT = 1
_MOST_WORKERS = 4
State = t.Literal["proved", "superseded", "incomplete", "corrupt", "failed"]


@dataclass
class Verdict:
    """What came out for one lock. Times are RFC 3339.

    :ivar lock: the lock's file name; ``repo``, ``revision`` and ``lock_digest`` are None when it cannot be read.
    :ivar state: ``proved``; ``superseded``: another revision is published, so this lock judges nothing any more;
        ``incomplete``: files are missing, or the snapshot is not what the lock says; ``corrupt``; ``failed``: it could
        not be told.
    :ivar files: their number by the lock.
    :ivar corrupt, missing: paths.
    :ivar proved_at: when all files were last proved by one verification, this one or an earlier one.
    :ivar oldest_proof: when the good file that was proved longest ago was proved.
    """

    lock: str
    state: State
    message: str
    seconds: float = 0.0
    repo: str | None = None
    revision: str | None = None
    lock_digest: str | None = None
    files: int = 0
    bytes_read: int = 0
    corrupt: t.Sequence[str] = ()
    missing: t.Sequence[str] = ()
    proved_at: str | None = None
    oldest_proof: str | None = None

    @property
    def good(self) -> bool:
        return self.state in ("proved", "superseded")


def verify_lock(store: str, path: str) -> Verdict:
    """Read every file of one lock from the disk and judge it."""
    name = os.path.basename(path)
    started = time.time()
    try:
        with open(path, encoding="utf-8") as stream:
            lock = parse_lock(json.load(stream))
        verdict = _verify_model(store, lock, name, started)
    except (StoreError, OSError, ValueError) as error:
        verdict = Verdict(name, "failed", str(error))
    verdict.seconds = round(time.time() - started, 3)
    return verdict


def _verify_model(store: str, lock: ModelLock, name: str, started: float) -> Verdict:
    model, tally = ModelDir(store, lock.repo), Tally()
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    found = survey(model, lock, Proving("full", workers=workers), tally)
    record(store, model, found)
    state, message = _judge(model, lock, found)
    return Verdict(
        name,
        state,
        message,
        repo=lock.repo,
        revision=lock.revision,
        lock_digest=lock.digest,
        files=len(lock.files),
        bytes_read=tally.bytes_hashed,
        corrupt=_paths(found.corrupt),
        missing=_paths(found.missing),
        proved_at=rfc3339(started) if state == "proved" else None,
        oldest_proof=None if found.oldest_proof is None else rfc3339(found.oldest_proof),
    )


def _judge(model: ModelDir, lock: ModelLock, found: Survey) -> tuple[State, str]:
    current = current_revision(model)
    if found.corrupt:
        message = f"not what the lock says: {', '.join(_paths(found.corrupt))}; the next play replaces what is corrupt"
        if any(read_stamp(model, blob.sha256) for blob in found.corrupt):
            message += " if it reads every file (sglang_model_verify: full), since a stamp could not be removed"
        return "corrupt", message
    if current not in (None, lock.revision):
        return "superseded", f"not judged, since {current} is published"
    if found.missing:
        return "incomplete", f"missing: {', '.join(_paths(found.missing))}"
    if not found.published:
        return "incomplete", f"revision {lock.revision} is not published as the lock says"
    return "proved", f"{len(lock.files)} files are what the lock says"


def _paths(blobs: t.Iterable[Blob]) -> list[str]:
    return sorted(path for blob in blobs for path in blob.paths)


def proved_before(report: str) -> dict[tuple[str, str], str]:
    """When each lock was last proved as a whole, by repository and lock digest; empty without an earlier report."""
    try:
        with open(report, encoding="utf-8") as stream:
            models = json.load(stream)["models"]
        return {(model["repo"], model["lock_digest"]): model["proved_at"] for model in models if model["proved_at"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def verify_store(store: str, locks: str, report: str) -> bool:
    """Prove the models of all locks of a directory one after another, tell a line for each, and write the report.

    :returns: whether all are good. No lock at all is not good: somebody believes that something is proved.
    :raises OSError: the locks cannot be listed, the report cannot be written.
    """
    before = proved_before(report)
    started = time.time()
    verdicts = []
    for name in sorted(name for name in os.listdir(locks) if name.endswith(".json")):
        verdict = verify_lock(store, os.path.join(locks, name))
        if verdict.proved_at is None and verdict.repo and verdict.lock_digest:
            verdict.proved_at = before.get((verdict.repo, verdict.lock_digest))
        said = f"{verdict.state}: {verdict.repo or name}: {verdict.message}"
        read = f"({verdict.bytes_read} bytes read in {verdict.seconds:.1f} s)"
        _say(f"{said} {read}", sys.stdout if verdict.good else sys.stderr)
        verdicts.append(verdict)
    if not verdicts:
        _say(f"failed: there is no lock in {locks}", sys.stderr)
    good = bool(verdicts) and all(verdict.good for verdict in verdicts)
    document = {
        "format": FORMAT,
        "store": store,
        "started": rfc3339(started),
        "finished": rfc3339(time.time()),
        "good": good,
        "oldest_proof": min((verdict.oldest_proof for verdict in verdicts if verdict.oldest_proof), default=None),
        "models": [asdict(verdict) for verdict in verdicts],
    }
    replace_text(report, json.dumps(document, indent=2) + "\n")
    return good


def _say(line: str, stream: t.TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True, help="directory of the store")
    parser.add_argument("--locks", required=True, help="directory with a lock for each model")
    parser.add_argument("--report", required=True, help="file to write the report to, as JSON")
    options = parser.parse_args()
    return 0 if verify_store(options.store, options.locks, options.report) else 1


if __name__ == "__main__":
    raise SystemExit(main())
