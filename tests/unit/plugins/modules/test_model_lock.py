# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, against a loopback Hub."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import canonical, parse_lock

from tests.engine.hub import Hub, make_lock, read_files, revision_of
from tests.module import run_module

ROOT = Path(__file__).resolve().parents[4]
REPO = "org/model"
TOKEN = "hf_a-token-that-nobody-may-see"
Result = dict[str, t.Any]


def run(name: str, arguments: Result) -> Result:
    result = run_module(name, arguments)
    assert TOKEN not in json.dumps(result)
    return result


def safetensors(tensors: dict[str, tuple[str, list[int], int]], metadata: bool = True) -> bytes:
    """A file with tensors, each by dtype, shape and length in bytes."""
    header: Result = {"__metadata__": {"format": "pt"}} if metadata else {}
    end = 0
    for name, (dtype, shape, length) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + os.urandom(end)


def write(folder: Path, files: t.Mapping[str, bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def model() -> dict[str, bytes]:
    shards = {f"model-0000{n}-of-00002.safetensors": safetensors({f"w{n}": ("F32", [n, 50], 200 * n)}) for n in (1, 2)}
    index = {"metadata": {"total_size": 600}, "weight_map": {f"w{n}": path for n, path in enumerate(sorted(shards), 1)}}
    return {
        **shards,
        "model.safetensors.index.json": json.dumps(index).encode(),
        "config.json": b'{"architectures": ["Toy"], "hidden_size": 50}',
        "modeling_toy.py": b"print('code of the repository')\n",
        "tiktoken.model": b"words\n",
        "figures/a picture.txt": b"\xff\x00",
    }


class Subject:
    """A repository on a Hub, and a module run with it."""

    def __init__(self, root: Path, hub: Hub) -> None:
        self.hub = hub
        self.folder = root / "hub" / REPO
        self.dest = root / "inventory/locks/org--model.json"
        self.token_file = root / "token"
        self.token_file.write_text(TOKEN + "\n")

    @property
    def commit(self) -> str:
        return revision_of(read_files(self.folder))

    def run(self, **options: t.Any) -> Result:
        own = {"repo": REPO, "dest": str(self.dest), "endpoint": self.hub.url, "retries": 0}
        return run("model_lock", {**own, **options})

    def refused(self, error_class: str, **options: t.Any) -> str:
        """Run it with a lock in place, which must survive; returns the message."""
        self.dest.parent.mkdir(parents=True, exist_ok=True)
        self.dest.write_text("{}\n")
        result = self.run(**options)
        assert result.get("failed"), result
        assert result.get("error_class") == error_class, result
        assert [self.dest.read_text(), os.listdir(self.dest.parent)] == ["{}\n", [self.dest.name]]
        return str(result["msg"])


@pytest.fixture
def subject(tmp_path: Path) -> t.Iterator[Subject]:
    write(tmp_path / "hub" / REPO, model())
    with Hub(tmp_path / "hub") as hub:
        yield Subject(tmp_path, hub)


def lfs_only(lock: Result) -> Result:
    """The test server's own lock, in which large files have a git id as well."""
    for file in lock["files"]:
        if file["path"].endswith((".safetensors", ".model")):
            del file["git_sha1"]
    return lock


def test_check_then_run_then_run_again(subject: Subject) -> None:
    predicted = subject.run(_ansible_check_mode=True, _ansible_diff=True)
    assert predicted["changed"]
    assert not subject.dest.parent.exists()
    done = subject.run(_ansible_diff=True)
    assert done["changed"]
    text = subject.dest.read_text()
    assert text == canonical(lfs_only(make_lock(subject.folder, REPO))) == done["diff"]["after"]
    assert predicted["diff"] == done["diff"]
    assert stat.S_IMODE(subject.dest.stat().st_mode) == 0o644
    lock = parse_lock(json.loads(text))
    assert (done["revision"], done["lock_digest"]) == (subject.commit, lock.digest)
    assert (done["files"], done["total_size"]) == (7, lock.total_size)
    assert (done["added"], done["removed"], done["modified"]) == (sorted(model()), [], [])
    assert done["previous_revision"] is None
    again = subject.run()
    assert not again["changed"]
    assert "locked already" in again["msg"]


def test_the_branch_is_resolved_once_and_weights_are_not_fetched(subject: Subject) -> None:
    result = subject.run()
    # the branch, the tree, and the four files that are in git
    assert result["requests"] == subject.hub.stats()["requests"] == 6
    assert not any(name.endswith((".safetensors", ".model")) for name in subject.hub.stats()["files"])
    subject.hub.forget()
    assert subject.run(revision=subject.commit)["requests"] == 5


def test_another_revision_shows_as_a_difference(subject: Subject) -> None:
    subject.run()
    before = subject.commit
    old = subject.folder.with_name("model@v1")
    write(old, {path.relative_to(subject.folder).as_posix(): path.read_bytes() for path in files_of(subject.folder)})
    (subject.folder / "modeling_toy.py").write_text("print('other code')\n")
    (subject.folder / "tiktoken.model").unlink()
    (subject.folder / "merges.txt").write_text("a b\n")
    moved = subject.run(_ansible_diff=True)
    assert (moved["previous_revision"], moved["revision"]) == (before, subject.commit)
    assert (moved["added"], moved["removed"]) == (["merges.txt"], ["tiktoken.model"])
    assert moved["modified"] == ["modeling_toy.py"]
    lines = [set(moved["diff"][side].splitlines()) for side in ("before", "after")]
    assert len(lines[1] - lines[0]) <= 10, "the lines that differ are those that say something new"
    back = subject.run(revision="v1")
    assert (back["changed"], back["revision"]) == (True, before)


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("page", [1, 2, 7])
def test_a_tree_of_several_pages(subject: Subject, page: int) -> None:
    subject.hub.page = page
    assert subject.run()["files"] == 7


def test_a_tree_without_end(subject: Subject) -> None:
    subject.hub.page = 0
    assert "does not end" in subject.refused("corrupt_source")


def test_tensors_are_read_from_the_beginnings_alone(subject: Subject) -> None:
    big = safetensors({"d2t": ("I64", [400_000], 3_200_000)})
    write(subject.folder, {"draft.safetensors": big})
    result = subject.run(tensors=True)
    assert json.loads(subject.dest.read_text())["facts"]["tensors"] == {
        "d2t": {"dtype": "I64", "shape": [400_000]},
        "w1": {"dtype": "F32", "shape": [1, 50]},
        "w2": {"dtype": "F32", "shape": [2, 50]},
    }
    assert subject.hub.stats()["files"][f"{REPO}/draft.safetensors"]["bytes"] == 64 << 10
    assert result["bytes_fetched"] < 100_000


def test_a_long_header_is_asked_for_in_whole(subject: Subject) -> None:
    many = {f"layer.{number}.weight": ("F32", [1], 4) for number in range(2000)}
    write(subject.folder, {"draft.safetensors": safetensors(many)})
    subject.run(tensors=True)
    assert many.keys() <= json.loads(subject.dest.read_text())["facts"]["tensors"].keys()
    assert subject.hub.stats()["files"][f"{REPO}/draft.safetensors"]["requests"] == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "too few"),
        (b"short", "too few"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "announces a header of 1099511627776 bytes"),
        ((3).to_bytes(8, "little") + b"{}", "announces a header of 3 bytes and has 10 bytes"),
        ((2).to_bytes(8, "little") + b"[]", "no JSON mapping"),
        ((2).to_bytes(8, "little") + b"{?", "no JSON mapping"),
        (safetensors({"w": ("F32", [1], 4)}) + b"more", "describes a file of"),
        (safetensors({"w": ("F32", [1], 4)})[:-1], "describes a file of"),
        (safetensors({"w": ("F32", [-1], 4)}), "without dtype, shape and place of 'w'"),
        ((9).to_bytes(8, "little") + b'{"w": {}}', "without dtype, shape and place of 'w'"),
    ],
)
def test_a_safetensors_file_that_is_none(subject: Subject, content: bytes, said: str) -> None:
    write(subject.folder, {"draft.safetensors": content})
    assert said in subject.refused("lock_invalid", tensors=True)


Retouch = t.Callable[[list[Result]], object]


def entry(entries: list[Result], path: str) -> Result:
    return next(one for one in entries if one["path"] == path)


def renamed(path: str) -> Retouch:
    return lambda entries: entry(entries, "tiktoken.model").update(path=path)


SHARD = "model-00001-of-00002.safetensors"
STARS = "*" * 64


@pytest.mark.parametrize(
    ("retouch", "error_class", "said"),
    [
        (lambda tree: entry(tree, SHARD).update(xetHash=STARS), "auth", f"{SHARD} has a redacted hash"),
        (lambda tree: entry(tree, SHARD)["lfs"].update(oid=STARS), "auth", f"{SHARD} has a redacted hash"),
        (lambda tree: entry(tree, SHARD)["lfs"].pop("oid"), "corrupt_source", f"{SHARD} has no hash"),
        (lambda tree: entry(tree, SHARD)["lfs"].update(size=7), "corrupt_source", f"{SHARD} has the size"),
        (lambda tree: entry(tree, "config.json").update(size=7), "corrupt_source", "config.json was sent with more"),
        (lambda tree: entry(tree, "config.json").update(size=99), "corrupt_source", "config.json was sent with 45"),
        (lambda tree: entry(tree, "config.json").update(oid="0" * 40), "corrupt_source", "with git sha1"),
        (lambda tree: entry(tree, "config.json").update(size=1 << 30), "lock_invalid", "too many to read"),
        (lambda tree: entry(tree, "config.json").update(type="symlink"), "lock_invalid", "is a 'symlink'"),
        (lambda tree: tree.append("config.json"), "corrupt_source", "no mapping"),
        (lambda tree: tree.clear(), "lock_invalid", "at least one entry"),
        (renamed("../../etc/cron.d/x"), "lock_invalid", "'..' part"),
        (renamed("/etc/cron.d/x"), "lock_invalid", "is absolute"),
        (renamed("a\\b"), "lock_invalid", "backslash"),
        (lambda tree: tree.append(entry(tree, "config.json")), "lock_invalid", "are one name"),
        (renamed("Config.JSON"), "lock_invalid", "are one name"),
        (renamed("config.json/x"), "lock_invalid", "is a file, and a folder"),
        (renamed("weights.bin"), "lock_invalid", "weights.bin is a pickle"),
        (renamed("a/weights.PT"), "lock_invalid", "weights.PT is a pickle"),
    ],
)
def test_a_tree_that_cannot_be_locked(subject: Subject, retouch: Retouch, error_class: str, said: str) -> None:
    subject.hub.retouch = retouch
    assert said in subject.refused(error_class)


def test_all_problems_of_a_repository_come_together(subject: Subject) -> None:
    def retouch(entries: list[Result]) -> None:
        entry(entries, "tiktoken.model")["path"] = "../x"
        entry(entries, SHARD)["xetHash"] = STARS
        entry(entries, "modeling_toy.py")["oid"] = "0" * 40
        entries.append(entry(entries, "config.json"))

    write(subject.folder, {"config.json": b"[]", "pytorch_model.bin": b"x"})
    subject.hub.retouch = retouch
    result = subject.run()
    assert result["error_class"] == "corrupt_source"
    for said in ("redacted", "'../x'", "modeling_toy.py was sent", "model.bin is a pickle", "no JSON", "are one name"):
        assert any(said in problem for problem in result["problems"]), said
        assert said in result["msg"]


def test_a_pickle_that_was_accepted_by_name(subject: Subject) -> None:
    write(subject.folder, {"pytorch_model.bin": b"x", "other.pt": b"y"})
    message = subject.refused("lock_invalid", accept_pickle=["other.pt"])
    assert "pytorch_model.bin is a pickle" in message
    assert "other.pt" not in message
    assert subject.run(accept_pickle=["other.pt", "pytorch_model.bin"])["files"] == 9


def test_folders_of_the_tree_are_no_files(subject: Subject) -> None:
    subject.hub.retouch = lambda tree: tree.append({"type": "directory", "path": "figures", "oid": "0" * 40, "size": 0})
    assert subject.run()["files"] == 7


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"weight_map": {"w1": SHARD, "w3": "model-00003-of-00003.safetensors"}}, "names model-00003-of-00003"),
        ({"weight_map": {"w1": 1}}, "no weight_map"),
        ({"weight_map": []}, "no weight_map"),
        ([], "no weight_map"),
    ],
)
def test_an_index_that_does_not_fit(subject: Subject, index: t.Any, said: str) -> None:
    write(subject.folder, {"model.safetensors.index.json": json.dumps(index).encode()})
    assert said in subject.refused("lock_invalid")


def test_shards_are_as_many_as_their_names_say(subject: Subject) -> None:
    (subject.folder / "model.safetensors.index.json").unlink()
    (subject.folder / SHARD).unlink()
    assert "model-*-of-00002.safetensors are 1 files, not 2" in subject.refused("lock_invalid")


def test_what_is_odd_is_a_warning(subject: Subject) -> None:
    index = {"metadata": {"total_size": 10**9}, "weight_map": {"w1": SHARD}}
    write(subject.folder, {"model.safetensors.index.json": json.dumps(index).encode()})
    (subject.folder / "config.json").unlink()
    result = subject.run()
    assert result["changed"]
    assert "1000000000 bytes of tensors" in str(result["warnings"])
    assert "no config.json" in str(result["warnings"])


@pytest.mark.parametrize(
    ("code", "error_class"), [(401, "auth"), (403, "auth"), (404, "not_found"), (429, "rate_limited"), (503, "network")]
)
@pytest.mark.parametrize("path", ["/revision/", "/tree/", "/resolve/.*/modeling_toy.py"])
def test_a_refusal_of_the_hub(subject: Subject, path: str, code: int, error_class: str) -> None:
    subject.hub.misbehave({path: {"kind": "status", "code": code}})
    assert f"answered {code}" in subject.refused(error_class, token_file=str(subject.token_file))


@pytest.mark.parametrize(("code", "after"), [(429, 0), (503, None)])
def test_a_failure_that_passes(subject: Subject, code: int, after: int | None) -> None:
    subject.hub.misbehave({"/tree/": {"kind": "status", "code": code, "retry_after": after, "times": 1}})
    result = subject.run(retries=1)
    assert (result["changed"], result["retries"]) == (True, 1)


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_connection_that_breaks(subject: Subject, kind: str) -> None:
    subject.hub.misbehave({"modeling_toy.py": {"kind": kind, "at": 5, "times": 1}})
    assert subject.run(retries=1)["retries"] == 1
    subject.hub.misbehave({"modeling_toy.py": {"kind": kind, "at": 5}})
    assert "modeling_toy.py could not be read" in subject.refused("network")


def test_a_changed_byte_of_a_small_file(subject: Subject) -> None:
    subject.hub.misbehave({"modeling_toy.py": {"kind": "flip", "at": 5}})
    assert "modeling_toy.py was sent with git sha1" in subject.refused("corrupt_source")


def test_names_that_are_not_there(subject: Subject) -> None:
    assert "404" in subject.refused("not_found", revision="no/such branch")
    assert "404" in subject.refused("not_found", repo="org/other")
    assert "org/name" in subject.refused("lock_invalid", repo="../../x")
    assert "http" in subject.run(endpoint="file:///etc")["msg"]
    assert "could not be read" in subject.refused("network", endpoint="http://127.0.0.1:1")


def test_the_token_opens_the_hub_and_goes_nowhere_else(subject: Subject) -> None:
    subject.hub.token, subject.hub.redirects = TOKEN, True
    assert "wants an access token" in subject.refused("auth")
    # large files come from another origin, which answers 400 to a token
    assert subject.run(token_file=str(subject.token_file), tensors=True)["changed"]
    subject.hub.token = "another"
    assert "may not read it" in subject.refused("auth", token_file=str(subject.token_file))


def test_the_token_is_not_sent_in_the_clear(subject: Subject) -> None:
    message = subject.refused("auth", token_file=str(subject.token_file), endpoint="http://hub.example.com")
    assert "is not https" in message
    message = subject.refused("auth", endpoint="http://user:password@127.0.0.1")
    assert "holds credentials" in message
    assert "password" not in message
    subject.token_file.write_text(f"{TOKEN} {TOKEN}")
    assert "one token on one line" in subject.refused("auth", token_file=str(subject.token_file))


def test_the_lock_of_another_repository_is_left_alone(subject: Subject) -> None:
    subject.run()
    text = subject.dest.read_text().replace(REPO, "org/other")
    subject.dest.write_text(text)
    assert "locks org/other, not org/model" in subject.run()["msg"]
    assert subject.dest.read_text() == text


def test_a_repository_with_the_shape_of_kimi_k2_6(subject: Subject, tmp_path: Path) -> None:
    """96 files, 64 shards whose total has six digits, no tokenizer.json: locked, fetched, nothing left out."""
    shards = {
        f"model-{number:05}-of-000064.safetensors": safetensors({f"layers.{number}.w": ("I32", [25, 10], 1000)})
        for number in range(1, 65)
    }
    weights = {f"layers.{number}.w": f"model-{number:05}-of-000064.safetensors" for number in range(1, 65)}
    names = ["LICENSE", "README.md", "THIRD_PARTY_NOTICES.md", ".gitattributes", "chat_template.jinja"]
    names += ["tiktoken.model", "tokenizer_config.json", "generation_config.json", "preprocessor_config.json"]
    names += [f"{name}_kimi_k25.py" for name in ("configuration", "modeling", "processing", "tokenization")]
    names += [f"docs/figure {number}.svg" for number in range(17)]
    files = {
        **shards,
        **{name: name.encode() * 20 for name in names},
        "config.json": json.dumps({"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {}}).encode(),
        "model.safetensors.index.json": json.dumps({"metadata": {"total_size": 64000}, "weight_map": weights}).encode(),
    }
    assert (len(files), "tokenizer.json" in files) == (96, False)
    repo = "moonshotai/Kimi-K2.6"
    write(tmp_path / "hub" / repo, files)
    subject.hub.page = 50
    subject.hub.redirects = True
    result = subject.run(repo=repo, tensors=True)
    assert result["files"] == 96
    lock = json.loads(subject.dest.read_text())
    assert len(lock["facts"]["tensors"]) == 64
    fetched = run(
        "model_snapshot",
        {"lock": lock, "store": str(tmp_path / "store"), "sources": [{"type": "hub", "url": subject.hub.url}]},
    )
    snapshot = Path(fetched["path"])
    got = {path.relative_to(snapshot).as_posix(): path.read_bytes() for path in files_of(snapshot)}
    assert got == files
