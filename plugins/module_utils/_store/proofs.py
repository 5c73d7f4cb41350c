# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Write down what reading a store has shown."""

from __future__ import annotations

import contextlib

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import drop_stamp, write_stamp
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Survey


def record(store: str, model: ModelDir, found: Survey) -> None:
    """Stamp what was proved, and take the stamps from what was found bad.

    While another run writes, or where we cannot, nothing is written down and the next run reads again.
    """
    if not found.proofs and not found.corrupt:
        return
    with contextlib.suppress(StoreError, OSError), sole_writer(store):
        for blob in found.corrupt:
            drop_stamp(model, blob.sha256)
        stamp(model, found)


def stamp(model: ModelDir, found: Survey) -> None:
    """Stamp what was proved, with the time at which it was. For a writer of the store."""
    for sha256, key in found.proofs.items():
        write_stamp(model, sha256, key, found.proved_at[sha256])
