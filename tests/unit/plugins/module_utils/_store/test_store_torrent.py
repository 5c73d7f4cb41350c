# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The torrent of a lock: one form, and nothing in it that the lock does not say."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock

from tests.unit.plugins.module_utils._store import store_kit as kit

FILES = kit.model_files()
LOCK = parse_lock(kit.lock_of(FILES))
ANNOUNCE = "http://mirror:6969/announce"
WEB_SEED = "http://mirror:8080/org/model/resolve/"


@pytest.fixture
def model(tmp_path: Path) -> ModelDir:
    """A store that has the blobs."""
    model = ModelDir(str(tmp_path), LOCK.repo)
    Path(model.blobs).mkdir(parents=True)
    for content in FILES.values():
        Path(model.blob(hashlib.sha256(content).hexdigest())).write_bytes(content)
    return model


@pytest.fixture
def data(model: ModelDir) -> bytes:
    return torrent.metainfo(LOCK, torrent.Metainfo(ANNOUNCE, WEB_SEED, torrent.hash_pieces(model, LOCK, 2)))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (0, b"i0e"),
        (-3, b"i-3e"),
        (b"", b"0:"),
        (b"spam", b"4:spam"),
        ([b"spam", [1]], b"l4:spamli1eee"),
        ({b"b": 1, b"a": {}}, b"d1:ade1:bi1ee"),
    ],
)
def test_bencode(value: torrent.Bencoded, form: bytes) -> None:
    assert torrent.encode(value) == form
    assert torrent.decode(form) == value


@pytest.mark.parametrize(
    "form",
    [b"", b"i", b"ie", b"ixe", b"5:spam", b"4spam", b"l", b"li1e", b"d1:ae", b"di1ei2ee", b"i1ei2e", b"x", b"l" * 99],
)
def test_what_is_not_bencoded_is_an_error(form: bytes) -> None:
    with pytest.raises(ValueError, match=r"at byte|not found|invalid literal"):
        torrent.decode(form)


def test_the_same_store_makes_the_same_torrent(model: ModelDir, data: bytes) -> None:
    said = torrent.read_metainfo(LOCK, data)
    assert said == torrent.Metainfo(ANNOUNCE, WEB_SEED, torrent.hash_pieces(model, LOCK, 4))
    assert torrent.metainfo(LOCK, said) == data
    info = t.cast("t.Any", torrent.decode(data))[b"info"]
    assert (info[b"name"], info[b"private"]) == (kit.REVISION.encode(), 1)
    assert torrent.info_hash(LOCK, said.pieces) == hashlib.sha1(torrent.encode(info)).hexdigest()


def test_pieces_are_those_of_the_files_in_order(model: ModelDir) -> None:
    blobs = torrent.shared_files(LOCK)
    assert [blob.path for blob in blobs] == sorted(set(FILES) - {"copy/of config.json", "empty.txt"})
    content = b"".join(FILES[blob.path] for blob in blobs)
    length = torrent.piece_length(len(content))
    expected = [hashlib.sha1(content[at : at + length]).digest() for at in range(0, len(content), length)]
    assert torrent.hash_pieces(model, LOCK, 2) == b"".join(expected)
    assert len(expected) > 4


@pytest.mark.parametrize(("total", "length"), [(1, 256 << 10), (10 << 30, 2 << 20), (600 << 30, 16 << 20)])
def test_piece_length(total: int, length: int) -> None:
    assert torrent.piece_length(total) == length


def test_the_good_beginning_of_a_file() -> None:
    lock = parse_lock(kit.lock_of(FILES))
    length = torrent.piece_length(0)
    start = 0
    for blob in torrent.shared_files(lock):
        pieces = range(start // length, (start + blob.size - 1) // length + 1)
        assert torrent.good_beginning(lock, blob, b"\xff") == blob.size
        assert torrent.good_beginning(lock, blob, b"") == 0
        for bad in pieces:
            good = (0xFF & ~(1 << (7 - bad))).to_bytes(1, "big")
            assert torrent.good_beginning(lock, blob, good) == max(0, bad * length - start)
        start += blob.size


def test_a_store_without_a_file_makes_no_torrent(model: ModelDir) -> None:
    blob = torrent.shared_files(LOCK)[0]
    Path(model.blob(blob.sha256)).unlink()
    with pytest.raises(StoreError) as failure:
        torrent.hash_pieces(model, LOCK, 1)
    assert failure.value.error_class == "not_found"
    assert blob.path in str(failure.value)


def _files(document: t.Any) -> t.Any:
    return document[b"info"][b"files"]


HOSTILE: dict[str, t.Callable[[t.Any], object]] = {
    "a path upwards": lambda it: _files(it)[0].update({b"path": [b"..", b"..", b"etc", b"passwd"]}),
    "an absolute path": lambda it: _files(it)[0].update({b"path": [b"/etc/passwd"]}),
    "another size": lambda it: _files(it)[0].update({b"length": 22}),
    "one file more": lambda it: _files(it).append({b"length": 1, b"path": [b"more"]}),
    "one file less": lambda it: _files(it).pop(),
    "another order": lambda it: _files(it).reverse(),
    "another name": lambda it: it[b"info"].update({b"name": b"../../x"}),
    "not private": lambda it: it[b"info"].update({b"private": 0}),
    "other pieces": lambda it: it[b"info"].update({b"piece length": 16384}),
    "a hash too many": lambda it: it[b"info"].update({b"pieces": it[b"info"][b"pieces"] + bytes(20)}),
    "no hash": lambda it: it[b"info"].update({b"pieces": b""}),
    "hashes that are none": lambda it: it[b"info"].update({b"pieces": [1]}),
    "nodes for a DHT": lambda it: it.update({b"nodes": [[b"192.0.2.1", 6881]]}),
    "more trackers": lambda it: it.update({b"announce-list": [[b"http://192.0.2.1/"]]}),
    "more web seeds": lambda it: it[b"url-list"].append(b"http://192.0.2.1/"),
    "no tracker": lambda it: it.pop(b"announce"),
    "no mapping inside": lambda it: it.update({b"info": 5}),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_what_the_lock_does_not_say_is_refused(data: bytes, change: str) -> None:
    document = torrent.decode(data)
    HOSTILE[change](document)
    with pytest.raises(ValueError, match=r"^it (is no torrent|has \d+ bytes)|^its name, files"):
        torrent.read_metainfo(LOCK, torrent.encode(document))


@pytest.mark.parametrize("form", [b"", b"<html>404</html>", b"d8:announce3:abce", b"le", b"i5e", b"d4:infode"])
def test_what_is_no_torrent_is_refused(form: bytes) -> None:
    with pytest.raises(ValueError, match="it is no torrent"):
        torrent.read_metainfo(LOCK, form)
