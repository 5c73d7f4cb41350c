# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The torrent of a lock: a private one of version 1, whose web seed is a mirror in the Hub's layout.

All of it but the piece hashes and two addresses follows from the lock, so whoever has the lock can tell whether a
torrent is the right one. Its name is the commit: a snapshot's folder is what the torrent unpacks to, and a web seed
``<mirror>/<repo>/resolve/`` has each file at the Hub's address. A content that has several paths is in it once.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock

_SHA1 = 20
_LEAST_PIECE = 256 << 10
_LARGEST_PIECE = 16 << 20
_MANY_PIECES = 8192
_DEEPEST = 8

Bencoded = t.Union[int, bytes, list["Bencoded"], dict[bytes, "Bencoded"]]


@dataclass(frozen=True)
class Metainfo:
    """What a torrent says beyond its lock.

    :ivar announce: address of the tracker.
    :ivar web_seed: address below which the folder named by the commit is.
    :ivar pieces: the SHA-1 of each piece, 20 bytes each.
    """

    announce: str
    web_seed: str
    pieces: bytes


def encode(value: Bencoded) -> bytes:
    """Bencode a value; the keys of a mapping are sorted, so a value has one form."""
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, list):
        return b"l%se" % b"".join(map(encode, value))
    return b"d%se" % b"".join(encode(key) + encode(value[key]) for key in sorted(value))


def decode(data: bytes) -> Bencoded:
    """Read a bencoded value.

    :raises ValueError: it is not one, or not one alone.
    """
    value, end = _decode(data, 0, 0)
    if end != len(data):
        raise ValueError(f"something follows at byte {end}")
    return value


def _decode(data: bytes, at: int, depth: int) -> tuple[Bencoded, int]:
    kind = data[at : at + 1]
    if depth > _DEEPEST:
        raise ValueError(f"nested too deep at byte {at}")
    if kind == b"i":
        end = data.index(b"e", at)
        return int(data[at + 1 : end]), end + 1
    if kind.isdigit():
        colon = data.index(b":", at)
        end = colon + 1 + int(data[at:colon])
        if end > len(data):
            raise ValueError(f"cut off at byte {at}")
        return data[colon + 1 : end], end
    if kind not in (b"l", b"d"):
        raise ValueError(f"no value at byte {at}")
    values: list[Bencoded] = []
    at += 1
    while data[at : at + 1] != b"e":
        value, at = _decode(data, at, depth + 1)
        values.append(value)
    if kind == b"l":
        return values, at + 1
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, bytes) for key in keys):
        raise ValueError(f"a mapping that is none ends at byte {at}")
    return dict(zip(t.cast("list[bytes]", keys), values[1::2])), at + 1


def shared_files(lock: ModelLock) -> list[Blob]:
    """The contents in the order that they have in the torrent. An empty file needs no transfer."""
    return sorted((blob for blob in lock.blobs() if blob.size), key=lambda blob: blob.path)


def piece_length(total: int) -> int:
    """Bytes of a piece for so many bytes in all: a few thousand pieces, but none above 16 MiB."""
    length = _LEAST_PIECE
    while length < _LARGEST_PIECE and total > length * _MANY_PIECES:
        length *= 2
    return length


def info_hash(lock: ModelLock, pieces: bytes) -> str:
    """What trackers and peers call the torrent, in hex."""
    return hashlib.sha1(encode(_info(lock, pieces)), usedforsecurity=False).hexdigest()


def metainfo(lock: ModelLock, said: Metainfo) -> bytes:
    """The torrent file: the same bytes for the same lock and the same addresses."""
    return encode(
        {
            b"announce": said.announce.encode(),
            b"info": _info(lock, said.pieces),
            b"url-list": [said.web_seed.encode()],
        }
    )


def read_metainfo(lock: ModelLock, data: bytes) -> Metainfo:
    """Read a torrent file and compare all that the lock determines with the lock.

    :raises ValueError: it is not the lock's torrent.
    """
    try:
        document = t.cast("t.Any", decode(data))
        said = Metainfo(
            document[b"announce"].decode(), document[b"url-list"][0].decode(), bytes(document[b"info"][b"pieces"])
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no torrent that we make ({error})") from error
    if len(said.pieces) != _SHA1 * _piece_count(lock):
        raise ValueError(f"it has {len(said.pieces)} bytes of piece hashes, {_SHA1 * _piece_count(lock)} are right")
    if metainfo(lock, said) != data:
        raise ValueError("its name, files, sizes or settings are not those that follow from the lock")
    return said


def good_beginning(lock: ModelLock, blob: Blob, good: bytes) -> int:
    """How many bytes from the start of a file on are in good pieces.

    :param blob: one of :func:`shared_files`, or an empty one.
    :param good: a bit for each piece, the first piece in the highest bit of the first byte. Pieces that are left out
        are not good.
    """
    blobs = shared_files(lock)
    length = piece_length(sum(each.size for each in blobs))
    start = sum(each.size for each in blobs if each.path < blob.path)
    number = start // length
    while number < 8 * len(good) and good[number // 8] >> (7 - number % 8) & 1:
        number += 1
    return max(0, min(blob.size, number * length - start))


def hash_pieces(model: ModelDir, lock: ModelLock, workers: int) -> bytes:
    """Read a store's blobs and hash every piece.

    :param workers: pieces that are read at once.
    :raises StoreError: class ``not_found`` when a blob is missing or has another size.
    """
    blobs = shared_files(lock)
    for blob in blobs:
        path = model.blob(blob.sha256)
        if not os.path.isfile(path) or os.path.getsize(path) != blob.size:
            raise StoreError(
                "not_found",
                f"{blob.path} of {lock.repo} is not in the store: {path}.",
                "Fetch and prove the model with model_snapshot first.",
                file=blob.path,
            )
    length = piece_length(sum(blob.size for blob in blobs))

    def hash_piece(number: int) -> bytes:
        return hashlib.sha1(_read(model, blobs, number * length, length), usedforsecurity=False).digest()

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return b"".join(pool.map(hash_piece, range(_piece_count(lock))))


def _read(model: ModelDir, blobs: t.Sequence[Blob], start: int, length: int) -> bytes:
    """Bytes of all blobs one after another, from an offset on."""
    parts = []
    begin = 0
    for blob in blobs:
        first, last = max(start - begin, 0), min(start + length - begin, blob.size)
        if first < last:
            with open(model.blob(blob.sha256), "rb") as stream:
                stream.seek(first)
                parts.append(stream.read(last - first))
        begin += blob.size
    return b"".join(parts)


def _info(lock: ModelLock, pieces: bytes) -> dict[bytes, Bencoded]:
    blobs = shared_files(lock)
    files: list[Bencoded] = [
        {b"length": blob.size, b"path": [part.encode() for part in blob.path.split("/")]} for blob in blobs
    ]
    return {
        b"files": files,
        b"name": lock.revision.encode(),
        b"piece length": piece_length(sum(blob.size for blob in blobs)),
        b"pieces": pieces,
        b"private": 1,
    }


def _piece_count(lock: ModelLock) -> int:
    total = sum(blob.size for blob in shared_files(lock))
    return -(-total // piece_length(total))
