# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the operator's sources and token become."""

from __future__ import annotations

import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.swarm import Swarming, SwarmSource
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally
from ansible_collections.inferops.serving.plugins.module_utils._store.transport import (
    HubSource,
    PathSource,
    Source,
    check_address,
)

AnySource = t.Union[Source, SwarmSource]


def open_sources(
    entries: t.Sequence[t.Mapping[str, t.Any]],
    lock: ModelLock,
    token: str | None,
    stall_timeout: float,
    tally: Tally,
) -> list[AnySource]:
    """The sources of a run, in the operator's order.

    :param entries: each ``{type: hub, url}``, ``{type: path, path}`` or ``{type: torrent, url}``, the last one with
        the fields of :class:`Swarming` where they are not the default.
    :raises StoreError: class ``auth`` when an address holds credentials.
    :raises ValueError: an address is not http or https.
    """
    sources: list[AnySource] = []
    for entry in entries:
        if entry["type"] == "path":
            sources.append(PathSource(entry["path"], lock))
            continue
        check_address(entry["url"])
        if entry["type"] == "hub":
            sources.append(HubSource(entry["url"], lock, token, stall_timeout, tally))
            continue
        own = {name: entry[name] for name in ("ports", "upload_limit", "seed_seconds") if entry.get(name) is not None}
        sources.append(SwarmSource(entry["url"], lock, Swarming(**own), stall_timeout, tally))
    return sources


def read_token(token: str | None, path: str | None) -> str | None:
    """The access token, given itself or by a file that holds it; None for neither.

    :raises StoreError: class ``auth``; the message never holds what the file holds.
    """
    if path is None:
        return _checked(token, "The access token is not one word.", "Look at what gives it.") if token else None
    try:
        with open(path, encoding="ascii") as stream:
            token = stream.read().strip()
    except (OSError, ValueError) as error:
        # A decoding error would quote the file, so only its kind is told.
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise StoreError(
            "auth",
            f"The token file {path} could not be read: {reason}.",
            "Write the token into it, readable by the user that fetches.",
        ) from None
    said = f"The token file {path} does not hold one token on one line."
    return _checked(token, said, "Write the token, and nothing else, into it.")


def _checked(token: str, said: str, remedy: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise StoreError("auth", said, remedy)
    return token
