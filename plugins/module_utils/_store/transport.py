# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Where bytes come from: a Hub-shaped HTTP server, or a directory. Neither is believed; the lock judges them."""

from __future__ import annotations

import email.utils
import errno
import http.client
import os
import re
import socket
import ssl
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import ErrorClass, StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, is_regular
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

USER_AGENT = "inferops.serving model_snapshot"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")
# The Hub's own header: RateLimit: "api";r=0;t=55  (t: seconds until the window ends)
_RATE_LIMIT_WAIT = re.compile(r"(?:^|;)\s*t=(\d+)")
WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Retryable(Exception):
    """A failure that may pass.

    :param error: what to raise once patience ends.
    :param wait: seconds that the source asked for, None when it did not.
    """

    def __init__(self, error: StoreError, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait


class RangeRefused(Exception):
    """The source answered a request for the rest of a file with something else than that rest."""


class Body(t.Protocol):
    """An open transfer. ``start`` is the offset in the file of the first byte that ``read`` gives."""

    start: int

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes as soon as there are any; empty at the end."""

    def close(self) -> None:
        """Drop the transfer."""


class Source(t.Protocol):
    """One place that may have the files of a lock. ``name`` is shown to operators and holds no secret."""

    name: str

    def locate(self, blob: Blob) -> str:
        """The full address of a file, for messages."""

    def open(self, blob: Blob, offset: int) -> Body:
        """Begin to transfer a file from an offset on.

        :raises Retryable: the failure may pass.
        :raises RangeRefused: ask from offset 0 instead.
        :raises StoreError: this source will not serve this file.
        """


class HubSource:
    """A server with the Hub's ``/<repo>/resolve/<revision>/<path>`` addresses.

    :param url: address of the server, http or https.
    :param token: access token, sent to this origin only and, but for loopback, over https only.
    :param stall_timeout: seconds without a byte after which a connection counts as dead.
    """

    def __init__(self, url: str, lock: ModelLock, token: str | None, stall_timeout: float, tally: Tally) -> None:
        self.name = url.rstrip("/")
        self._lock = lock
        self._token = token
        self._timeout = stall_timeout
        self._tally = tally
        self._etags: dict[str, str] = {}
        self._opener = urllib.request.build_opener(OriginKeepingRedirects(tally))

    def locate(self, blob: Blob) -> str:
        return f"{self.name}/{self._lock.repo}/resolve/{self._lock.revision}/{urllib.parse.quote(blob.path)}"

    def open(self, blob: Blob, offset: int) -> Body:
        request = self._request(blob, offset)
        self._tally.requested()
        try:
            response = self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as answer:
            with answer:
                raise self._refusal(blob, answer, offset) from answer
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(blob, error) from error
        try:
            start = self._check_extent(blob, response, offset)
        except BaseException:
            response.close()
            raise
        if start == 0 or blob.sha256 not in self._etags:
            # what comes later has to belong to these bytes
            self._etags[blob.sha256] = response.headers.get("ETag", "")
        return _HubBody(response, start, lambda error: self._broken(blob, error))

    def _request(self, blob: Blob, offset: int) -> urllib.request.Request:
        request = urllib.request.Request(self.locate(blob), headers={"User-Agent": USER_AGENT})
        # A re-encoded body would have another length and another digest than the file.
        request.add_header("Accept-Encoding", "identity")
        if offset:
            request.add_header("Range", f"bytes={offset}-")
            etag = self._etags.get(blob.sha256, "")
            # RFC 9110 section 13.1.5: a weak tag (W/"...") must not be sent here
            if etag.startswith('"'):
                request.add_header("If-Range", etag)
        authorize(request, self._token, self.name)
        return request

    def _refusal(self, blob: Blob, answer: urllib.error.HTTPError, offset: int) -> Exception:
        """What an answer of 400 or more means."""
        if answer.code == 416 and offset:
            return RangeRefused()
        said, wait = describe_refusal(self.locate(blob), answer)
        error_class = class_of_status(answer.code)
        remedy = "Look at the source; what has been fetched is kept and the next run goes on from there."
        if error_class == "auth":
            remedy = (
                "The access token was refused: check that it may read the repository (token_file)."
                if self._token
                else "The repository wants an access token: put one in a file and name it (token_file)."
            )
        elif error_class == "not_found":
            remedy = "Check the source's address, and that it has the repository at the locked revision."
        elif error_class == "rate_limited":
            remedy = "Wait for the source's next window, use a token, or fetch once and copy inside the site."
        error = StoreError(error_class, said, remedy, file=blob.path, source=self.name, status=answer.code)
        if answer.code in WORTH_ANOTHER_TRY:
            return Retryable(error, wait)
        return error

    def _broken(self, blob: Blob, error: Exception) -> Exception:
        detail, may_pass = describe_break(error, self._timeout)
        store_error = StoreError(
            "network",
            f"{self.locate(blob)} could not be read: {detail}.",
            "Check the way to the source; what has been fetched is kept and the next run goes on from there.",
            file=blob.path,
            source=self.name,
        )
        return Retryable(store_error) if may_pass else store_error

    def _check_extent(self, blob: Blob, response: http.client.HTTPResponse, offset: int) -> int:
        """Compare what the headers promise with the lock and tell where the body begins."""
        if response.status == 206:
            extent = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if extent and extent[3] not in ("*", str(blob.size)):
                raise self._other_file(blob, f"a file of {extent[3]} bytes")
            if not extent or (int(extent[1]), int(extent[2])) != (offset, blob.size - 1):
                if offset:
                    raise RangeRefused()
                raise self._other_file(blob, "only a part of the file, unasked")
            return offset
        length = response.headers.get("Content-Length")
        if length is not None and length != str(blob.size):
            raise self._other_file(blob, f"a file of {length} bytes")
        return 0

    def _other_file(self, blob: Blob, sent: str) -> StoreError:
        return StoreError(
            "corrupt_source",
            f"{self.locate(blob)} sends {sent}; the lock says {blob.size} bytes.",
            "Use another source, or make the lock again if the repository was meant to change.",
            file=blob.path,
            source=self.name,
        )


class _HubBody:
    def __init__(
        self, response: http.client.HTTPResponse, start: int, broken: t.Callable[[Exception], Exception]
    ) -> None:
        self.start = start
        self._response = response
        self._broken = broken

    def read(self, size: int) -> bytes:
        try:
            # read1 gives what one receive brought; read would hold back bytes that a reset then destroys.
            return self._response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def close(self) -> None:
        self._response.close()


def check_address(url: str) -> None:
    """Refuse an address that is not plain http or https.

    :raises StoreError: class ``auth`` when it holds credentials.
    :raises ValueError: it is not http or https.
    """
    address = urllib.parse.urlsplit(url)
    if address.username is not None or address.query or address.fragment:
        raise StoreError(
            "auth",
            f"The address of source {address.hostname} holds credentials or a query.",
            "Give the bare address, and the token in a file (token_file).",
        )
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"{url!r} is not an http or https address")


def authorize(request: urllib.request.Request, token: str | None, source: str) -> None:
    """Give a request the access token, if there is one.

    :raises StoreError: class ``auth``; the token would travel readable beyond this machine.
    """
    if not token:
        return
    if request.type != "https" and urllib.parse.urlsplit(request.full_url).hostname not in _LOOPBACK:
        raise StoreError(
            "auth",
            f"{source} is not https, so the access token is not sent to it.",
            "Give the source an https address, or leave the token out.",
            source=source,
        )
    request.add_header("Authorization", f"Bearer {token}")


def class_of_status(status: int) -> ErrorClass:
    """What kind of failure an HTTP status of 400 or more is."""
    if status in (401, 403):
        return "auth"
    if status in (404, 410):
        return "not_found"
    return "rate_limited" if status == 429 else "network"


def describe_refusal(url: str, answer: urllib.error.HTTPError) -> tuple[str, float | None]:
    """What a server answered instead of a file, in a sentence, and the seconds that it asks to wait."""
    wait = asked_wait(answer.headers)
    asked = "" if wait is None else f" and asks to wait {wait:.0f} s"
    return f"{url} answered {answer.code} {answer.reason}{asked}.", wait


def describe_break(error: Exception, timeout: float) -> tuple[str, bool]:
    """What broke a connection, in words, and whether it may pass."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, socket.timeout):
        return f"no byte came in time ({timeout:g} s)", True
    return str(reason) or type(reason).__name__, not isinstance(reason, ssl.SSLCertVerificationError)


class OriginKeepingRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects and drops the access token where they leave the origin."""

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def redirect_request(self, req: t.Any, fp: t.Any, code: int, msg: str, headers: t.Any, newurl: str) -> t.Any:
        # Python before 3.11 knows no 308; it differs from 307 only in what caches may do.
        onward = super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)
        if onward is not None:
            self._tally.requested()
            if (onward.type, onward.host) != (req.type, req.host):
                onward.remove_header("Authorization")
        return onward


def asked_wait(headers: t.Any) -> float | None:
    """Seconds to wait by Retry-After (RFC 9110: a number or a date) or by the Hub's RateLimit header."""
    after = headers.get("Retry-After")
    if after is not None:
        if after.strip().isdigit():
            return float(after)
        try:
            return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
        except (TypeError, ValueError):
            return None
    window = _RATE_LIMIT_WAIT.search(headers.get("RateLimit", ""))
    return float(window[1]) if window else None


class PathSource:
    """A directory on the host: another store or Hub cache, folders named org/name, or one repository's files."""

    def __init__(self, path: str, lock: ModelLock) -> None:
        self.name = path
        self._folders = (ModelDir(path, lock.repo).snapshot(lock.revision), os.path.join(path, lock.repo), path)

    def locate(self, blob: Blob) -> str:
        places = [os.path.join(folder, blob.path) for folder in self._folders]
        return next((place for place in places if os.path.exists(place)), places[-1])

    def open(self, blob: Blob, offset: int) -> Body:
        path = self.locate(blob)
        try:
            # A pipe without a writer would hold up an ordinary open for ever.
            stream = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115  (the body owns it)
            status = os.fstat(stream.fileno())
        except OSError as error:
            raise self._unreadable(blob, error) from error
        if not is_regular(status) or status.st_size != blob.size:
            stream.close()
            found = f"has {status.st_size} bytes" if is_regular(status) else "is no plain file"
            raise StoreError(
                "corrupt_source",
                f"{path} {found}; the lock says {blob.size} bytes.",
                "Copy the file there again, or use another source.",
                file=blob.path,
                source=self.name,
            )
        stream.seek(offset)
        return _PathBody(stream, offset, lambda error: self._unreadable(blob, error))

    def _unreadable(self, blob: Blob, error: OSError) -> StoreError:
        error_class: ErrorClass = "corrupt_source"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            error_class = "not_found"
        elif isinstance(error, PermissionError):
            error_class = "auth"
        return StoreError(
            error_class,
            f"{self.locate(blob)} could not be read: {error.strerror}.",
            "Check the folder that the source names, or use another source.",
            file=blob.path,
            source=self.name,
        )


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class _PathBody:
    def __init__(self, stream: t.Any, start: int, unreadable: t.Callable[[OSError], StoreError]) -> None:
        self.start = start
        self._stream = stream
        self._unreadable = unreadable

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        self._stream.close()
