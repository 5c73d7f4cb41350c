# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weight files that are none, told by their structure."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.content import content_problem
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

from tests.unit.plugins.module_utils._store import store_kit as kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

WHOLE = kit.safetensors("whole", 5000)
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", WHOLE),
        ("model.safetensors", with_header(b"{}")),
        ("model.safetensors", with_header(b'{"__metadata__": {"format": "pt"}}  ')),
        (
            "model.safetensors",
            with_header(
                b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
                b' "b": {"dtype": "F16", "shape": [1], "data_offsets": [4, 6]}}',
                bytes(6),
            ),
        ),
        ("pytorch_model.bin", b"not a safetensors file"),
        ("README.md", b"A file that begins with version https://git-lfs.github.com/spec/v1 is a pointer."),
        ("long.txt", POINTER + b" " * 1024),
        ("empty.txt", b""),
    ],
)
def test_whole_files_pass(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "part").write_bytes(content)
    assert content_problem(name, str(tmp_path / "part")) is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.safetensors", WHOLE[:-1], "has 4999 bytes; its header describes a file of 5000 bytes"),
        ("a.safetensors", WHOLE + b"x", "has 5001 bytes; its header describes a file of 5000 bytes"),
        ("a.safetensors", b"", "has 0 bytes, too few for a safetensors file"),
        ("a.safetensors", WHOLE[:7], "has 7 bytes, too few"),
        ("a.safetensors", WHOLE[:20], "and has 20 bytes"),
        ("a.safetensors", bytes(5000), "no JSON mapping"),
        ("a.safetensors", b"\xff" * 5000, "announces a header of 18446744073709551615 bytes"),
        ("a.safetensors", with_header(b"[]"), "no JSON mapping"),
        ("a.safetensors", with_header(b'{"a": 1}'), "without dtype, shape and place of 'a'"),
        ("a.safetensors", with_header(b'{"a": {"data_offsets": [0]}}'), "without dtype, shape and place of 'a'"),
        ("a.safetensors", with_header(b'{"a": {"data_offsets": [0, "4"]}}'), "without dtype, shape and place of 'a'"),
        ("a.safetensors", with_header(b'{"a": {"data_offsets": [0, 1], ' * 5000), "no JSON mapping"),
        ("a.safetensors", with_header(b"[" * 200_000), "no JSON mapping"),
        ("a.safetensors", POINTER, "is a Git LFS pointer"),
        ("tokenizer.json", POINTER, "is a Git LFS pointer"),
        ("pytorch_model.bin", POINTER, "is a Git LFS pointer"),
    ],
)
def test_what_is_no_weights_is_told(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / "part").write_bytes(content)
    assert said in (content_problem(name, str(tmp_path / "part")) or "")


@pytest.mark.parametrize("content", [kit.safetensors("x", 900_000)[:800_000], POINTER])
def test_a_lock_made_from_a_broken_upload_is_blamed_not_the_source(subject: Subject, content: bytes) -> None:
    whole = dict(subject.hub.files)
    subject.hub.files[kit.SHARD] = content
    subject.document = kit.lock_of(subject.hub.files)
    with kit.running(subject.hub.files) as second:
        sources = [{"type": "hub", "url": url} for url in (subject.hub.url, second.url)]
        for requests in (1, 0):
            with pytest.raises(StoreError, match="byte for byte what the lock says") as failure:
                subject.present(*sources, store=subject.open(workers=1))
            assert failure.value.error_class == "lock_invalid"
            assert failure.value.facts["file"] == kit.SHARD
            asked = [one for one in subject.hub.asked + second.asked if one.path == kit.SHARD]
            assert len(asked) == requests, "no other source is tried, and the next run need not fetch it to say so"
            subject.hub.forget()
    assert not (subject.model / "current").exists()
    assert not subject.blob(kit.SHARD).exists()
    subject.hub.files = whole
    subject.document = kit.lock_of(whole, "f" * 40)
