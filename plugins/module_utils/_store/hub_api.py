# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a Hub says of a repository: its commit, its tree, small files and the beginnings of large ones.

Nothing is believed here beyond the form of an answer. What it is worth is for the lock maker to say.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import is_commit
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally
from ansible_collections.inferops.serving.plugins.module_utils._store.transport import (
    WORTH_ANOTHER_TRY,
    OriginKeepingRedirects,
    Retryable,
    authorize,
    check_address,
    class_of_status,
    describe_break,
    describe_refusal,
)

_USER_AGENT = "inferops.serving model_lock"
# RFC 8288: <address>; rel="next", one of several
_NEXT = re.compile(r'<([^>]*)>\s*;[^,<]*\brel="?next"?')
_CONTENT_RANGE = re.compile(r"bytes 0-(\d+)/(\d+)\Z")
# A page of the tree has up to 1000 entries of some 300 bytes. Models have hundreds of files.
_LARGEST_ANSWER = 16 << 20
_MOST_PAGES = 200


@dataclass(frozen=True)
class _Answer:
    """A response: ``body`` is the beginning of it, as much as was wanted."""

    status: int
    headers: t.Any
    body: bytes


class HubApi:
    """One Hub, asked about repositories.

    :param endpoint: its address, http or https, without credentials.
    :param token: access token, sent to this origin only and, but for loopback, over https only.
    :param timeout: seconds without a byte after which a connection counts as dead.
    :raises StoreError: class ``auth`` when the address holds credentials.
    :raises ValueError: the address is not http or https.
    """

    def __init__(self, endpoint: str, token: str | None, patience: Patience, timeout: float, tally: Tally) -> None:
        check_address(endpoint)
        self.name = endpoint.rstrip("/")
        self._token = token
        self._patience = patience
        self._timeout = timeout
        self._tally = tally
        self._opener = urllib.request.build_opener(OriginKeepingRedirects(tally))

    def commit(self, repo: str, revision: str) -> str:
        """The commit that a branch or a tag is at. A commit is its own.

        :raises StoreError: the Hub does not say; class ``not_found`` when there is no such repository or revision.
        """
        if is_commit(revision):
            return revision
        url = f"{self.name}/api/models/{repo}/revision/{urllib.parse.quote(revision, safe='')}"
        document = self._json(url, self._ask(url, _LARGEST_ANSWER))
        commit = document.get("sha") if isinstance(document, dict) else None
        if not is_commit(commit):
            raise self._nonsense(url, "does not name the commit")
        return str(commit)

    def tree(self, repo: str, commit: str) -> list[t.Any]:
        """Every entry of a commit's tree, as the Hub describes it, over all pages.

        :raises StoreError: a page did not come, or is no list.
        """
        url: str | None = f"{self.name}/api/models/{repo}/tree/{commit}?recursive=true&expand=false"
        entries: list[t.Any] = []
        seen: set[str] = set()
        while url is not None:
            if url in seen or len(seen) == _MOST_PAGES:
                raise self._nonsense(url, "is one page too many: the list does not end")
            seen.add(url)
            answer = self._ask(url, _LARGEST_ANSWER)
            page = self._json(url, answer)
            if not isinstance(page, list):
                raise self._nonsense(url, "is no list of files")
            entries += page
            url = self._next_page(url, answer)
        return entries

    def content(self, repo: str, commit: str, path: str, size: int) -> bytes:
        """A whole file that has ``size`` bytes in the tree. Of one that is longer, one byte more than that.

        :raises StoreError: it did not come.
        """
        return self._ask(self._file_url(repo, commit, path), size + 1).body

    def beginning(self, repo: str, commit: str, path: str, size: int, length: int) -> bytes:
        """The first ``length`` bytes of a file, or all of it if it has less. No more than that is read.

        :param size: of the whole file in bytes, as the tree gives it; not 0.
        :raises StoreError: they did not come; class ``corrupt_source`` when the file has another size.
        """
        url = self._file_url(repo, commit, path)
        length = min(length, size)
        answer = self._ask(url, length, f"bytes=0-{length - 1}")
        if answer.status == 206:
            extent = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
            if not extent or (int(extent[1]), int(extent[2])) != (length - 1, size):
                said = answer.headers.get("Content-Range")
                raise self._nonsense(url, f"sends the range {said!r}; wanted were {length} of {size} bytes")
        if len(answer.body) != length:
            raise self._nonsense(url, f"ends after {len(answer.body)} bytes; the tree says {size}")
        return answer.body

    def _file_url(self, repo: str, commit: str, path: str) -> str:
        return f"{self.name}/{repo}/resolve/{commit}/{urllib.parse.quote(path)}"

    def _next_page(self, url: str, answer: _Answer) -> str | None:
        following = _NEXT.search(", ".join(answer.headers.get_all("Link") or []))
        if following is None:
            return None
        address = urllib.parse.urljoin(url, following[1])
        here, there = urllib.parse.urlsplit(self.name), urllib.parse.urlsplit(address)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise self._nonsense(url, f"goes on at another server, {there.netloc}")
        return address

    def _ask(self, url: str, most: int, span: str | None = None) -> _Answer:
        """Ask until there is an answer or patience ends. Reads at most ``most`` bytes."""
        failures = 0
        while True:
            try:
                return self._ask_once(url, most, span)
            except Retryable as failure:
                failures += 1
                wait = self._patience.wait(failures, failure.wait)
                if wait is None:
                    raise failure.error from failure
                self._tally.retried()
                time.sleep(wait)

    def _ask_once(self, url: str, most: int, span: str | None) -> _Answer:
        request = urllib.request.Request(url, headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"})
        if span is not None:
            request.add_header("Range", span)
        authorize(request, self._token, self.name)
        self._tally.requested()
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                body = response.read(most)
                announced = response.headers.get("Content-Length", "")
        except urllib.error.HTTPError as answer:
            with answer:
                raise self._refusal(url, answer) from answer
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(url, *describe_break(error, self._timeout)) from error
        self._tally.fetched(len(body))
        if announced.isdigit() and len(body) < min(int(announced), most):
            raise self._broken(url, f"it ended after {len(body)} of {announced} bytes", True)
        return _Answer(response.status, response.headers, body)

    def _refusal(self, url: str, answer: urllib.error.HTTPError) -> Exception:
        error_class = class_of_status(answer.code)
        said, wait = describe_refusal(url, answer)
        remedy = "Look at the Hub and run again; the lock is as it was."
        if error_class == "auth":
            remedy = "There is no such repository, or it wants an access token: put one in a file (token_file)."
            if self._token:
                remedy = "There is no such repository, or the access token (token_file) may not read it."
        elif error_class == "not_found":
            remedy = "Check the names of the repository and of the revision."
        elif error_class == "rate_limited":
            remedy = "Wait for the Hub's next window, or use a token (token_file)."
        error = StoreError(error_class, said, remedy, source=self.name, status=answer.code)
        return Retryable(error, wait) if answer.code in WORTH_ANOTHER_TRY else error

    def _broken(self, url: str, detail: str, may_pass: bool) -> Exception:
        error = StoreError(
            "network",
            f"{url} could not be read: {detail}.",
            "Check the way to the Hub and run again; the lock is as it was.",
            source=self.name,
        )
        return Retryable(error) if may_pass else error

    def _json(self, url: str, answer: _Answer) -> t.Any:
        if len(answer.body) == _LARGEST_ANSWER:
            raise self._nonsense(url, f"is longer than {_LARGEST_ANSWER} bytes")
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._nonsense(url, "is no JSON") from None

    def _nonsense(self, url: str, what: str) -> StoreError:
        return StoreError(
            "corrupt_source",
            f"The answer of {url} {what}.",
            "Check that the endpoint is a Hub; the lock is as it was.",
            source=self.name,
        )
