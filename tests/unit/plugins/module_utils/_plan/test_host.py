# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.inferops.serving.plugins.module_utils._plan.engine_lock import (
    EngineLockProblem,
    read_engine_lock,
    shipped_locks,
)
from ansible_collections.inferops.serving.plugins.module_utils._plan.host import DEFAULTS, HostPlan, plan_host
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[5]
REVISION = "1" * 40
CANARY = "canary-30d2"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An inventory folder with an engine lock, and beside it the locks of a target and a drafter."""
    tmp_path = tmp_path / "inventory"
    tmp_path.mkdir()
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "requirements.txt").write_text("sglang==0.5.19 --hash=sha256:" + "0" * 64 + "\n")
    (engine / "lock.json").write_text(
        json.dumps(
            {"format": 1, "sglang": "0.5.19", "python": "3.11", "platform": "x86_64-manylinux_2_34", "stand_ins": True}
        )
    )
    (tmp_path.parent / "locks").mkdir()
    for repo, architecture in (("tiny/k2", "DeepseekV3ForCausalLM"), ("tiny/draft", "LlamaForCausalLMEagle3")):
        (tmp_path.parent / "locks" / f"{repo.replace('/', '--')}.json").write_text(
            json.dumps(
                {
                    "format": 1,
                    "repo": repo,
                    "repo_type": "model",
                    "revision": REVISION,
                    "files": [{"path": "config.json", "size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}],
                    "total_size": 2,
                    "facts": {"config": {"architectures": [architecture]}},
                }
            )
        )
    return tmp_path


def planned(site: Path, **variables: Any) -> HostPlan:
    return plan_host(
        "a1",
        {
            "inventory_dir": str(site),
            "sglang_engine_version": "0.5.19",
            "sglang_engine_lock": "./engine",
            "sglang_model_target": "tiny/k2",
            "sglang_model_drafter": "tiny/draft",
            "sglang_plan_gpu": "none",
            "sglang_server_args": {"speculative_algorithm": "EAGLE3", "device": "cpu"},
            **variables,
        },
        {},
    )


def rule_ids(plan: HostPlan) -> set[str]:
    return {finding.rule for finding in plan.findings}


def test_a_whole_plan(site: Path) -> None:
    plan = planned(site).as_dict()
    digest = read_engine_lock(str(site / "engine")).digest
    target = f"/srv/models/models--tiny--k2/snapshots/{REVISION}"
    drafter = f"/srv/models/models--tiny--draft/snapshots/{REVISION}"
    assert plan["engine"] == {
        "root": "/opt/sglang",
        "version": "0.5.19",
        "lock": str(site / "engine"),
        "digest": digest,
        "path": f"/opt/sglang/engines/0.5.19-{digest}",
        "python": "3.11",
        "stand_ins": True,
    }
    assert [(model["role"], model["path"], model["locked"]) for model in plan["model"]["models"]] == [
        ("target", target, True),
        ("drafter", drafter, True),
    ]
    assert plan["server"]["unit"] == "sglang-main.service"
    assert plan["server"]["url"] == "http://127.0.0.1:30000"
    assert plan["server"]["speculative"] is True
    words = plan["server"]["argv"]
    assert words[words.index("--model-path") + 1] == target
    assert words[words.index("--speculative-draft-model-path") + 1] == drafter
    assert words[words.index("--served-model-name") + 1] == "tiny/k2"


def test_what_the_operator_gives_is_not_filled_in(site: Path) -> None:
    args = {"speculative_algorithm": "EAGLE3", "port": 31000, "host": "0.0.0.0", "model-path": "/elsewhere"}
    plan = planned(site, sglang_server_args=args)
    assert plan.server is not None
    assert plan.server["url"] == "http://127.0.0.1:31000"
    assert "model_path" not in plan.filled
    assert plan.server["argv"].count("--model-path") == 1


def test_the_catalogue_does_not_complete_numbers_that_were_begun(site: Path) -> None:
    kimi = {
        "sglang_engine_version": "0.5.19",
        "sglang_model_target": "moonshotai/Kimi-K2.6",
        "sglang_model_drafter": "lightseekorg/kimi-k2.6-eagle3",
        "sglang_plan_gpu": "h200",
    }
    whole = planned(site, **kimi, sglang_server_args={"tp_size": 8})
    assert whole.filled["speculative_algorithm"] == "EAGLE3"
    assert whole.filled["speculative_num_steps"] == 3
    for begun in ({"speculative_num_draft_tokens": 3}, {"speculative_eagle_top_k": 4}):
        plan = planned(site, **kimi, sglang_server_args={"tp_size": 8, **begun})
        assert "speculative_num_steps" not in plan.filled
        assert {"spec-steps-missing", "flag-unknown"} & rule_ids(plan)


@pytest.mark.parametrize(
    ("gpu", "ranks"),
    [
        ("h200", 8),
        ("b200", 8),
        ("gb200", 4),
        # 64 heads of latent attention in sixteens
        ("mi300x", 4),
        ({"memory_gib": 1000, "count": 8}, None),
        ({"memory_gib": 100, "count": 3}, 2),
        ({"memory_gib": 100}, None),
        (None, None),
    ],
)
def test_a_target_and_a_gpu_are_enough_for_a_plan(site: Path, gpu: Any, ranks: int | None) -> None:
    nothing = dict.fromkeys(("sglang_engine_version", "sglang_model_drafter", "sglang_server_args"))
    plan = planned(site, **nothing, sglang_model_target="moonshotai/Kimi-K2.6", sglang_plan_gpu=gpu)
    assert plan.release == DEFAULTS["sglang_engine_version"]
    assert plan.filled.get("tp_size") == ranks
    if ranks in (4, 8):
        assert plan.report is not None
        assert plan.report.stopping() == []


@pytest.mark.parametrize("own", [{"tp": 2}, {"pp_size": 2}, {"nnodes": 2}])
def test_ranks_are_not_filled_in_where_the_operator_spreads_the_target(site: Path, own: dict[str, int]) -> None:
    plan = planned(site, sglang_model_target="moonshotai/Kimi-K2.6", sglang_plan_gpu="h200", sglang_server_args=own)
    assert "tp_size" not in plan.filled


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("sglang_engine_version", "latest", "release-unreadable"),
        ("sglang_engine_version", 0.5, "variable-type"),
        ("sglang_engine_version", "0.5.11", "engine-lock-release"),
        ("sglang_engine_lock", "./nowhere", "engine-lock-missing"),
        ("sglang_engine_lock", "no-such-shipped-lock", "engine-lock-missing"),
        ("sglang_plan_gpu", "h300", "gpu-unreadable"),
        ("sglang_plan_gpu", {"compute_capability": "nine"}, "gpu-unreadable"),
        ("sglang_plan_gpu", None, "gpu-unnamed"),
        ("sglang_server_args", ["--tp", "8"], "variable-type"),
        ("sglang_server_env", {"A B": "x"}, "variable-type"),
        ("sglang_server_env", {"A": True}, "variable-type"),
        ("sglang_server_secret_args", CANARY, "variable-type"),
        ("sglang_server_secret_args", {"no_such_flag": CANARY}, "secret-arg-unknown"),
        ("sglang_server_secret_args", {"served_model_name": CANARY}, "secret-arg-unknown"),
        ("sglang_server_secret_args", {"api-key": f"-{CANARY}"}, "secret-arg-value"),
        ("sglang_server_secret_args", {"api_key": f"{CANARY}\n"}, "secret-arg-value"),
        ("sglang_server_secret_args", {"api_key": f"{CANARY}\u00e9"}, "secret-arg-value"),
        ("sglang_server_secret_args", {"api_key": [CANARY]}, "secret-arg-value"),
        ("sglang_server_secret_args", {"api_key": ""}, "secret-arg-value"),
        ("sglang_server_secret_args", {"admin_api_key": CANARY}, "secret-admin-alone"),
        ("sglang_server_name", "a/b", "variable-type"),
        ("sglang_plan_accept", "some-rule", "variable-type"),
        ("sglang_server_expect", {"name": "a"}, "variable-type"),
        ("sglang_server_expect", [{"name": "a", "query": "a[", "min": 1}], "expectation"),
        ("sglang_model_target", {"name": "x"}, "variable-type"),
        ("sglang_model_target", {"repo": "tiny/k2", "path": "x"}, "variable-type"),
        ("sglang_model_target", "tiny/other", "model-lock-missing"),
        ("sglang_model_target", "tiny/other", "model-unknown"),
        ("sglang_model_target", {"repo": "tiny/other", "lock": "tiny--k2.json"}, "model-lock-invalid"),
        ("sglang_model_target", None, "model-path-missing"),
    ],
)
def test_a_variable_that_cannot_be_planned_with(site: Path, variable: str, value: Any, rule: str) -> None:
    plan = planned(site, **{variable: value})
    assert rule in rule_ids(plan)
    assert CANARY not in json.dumps([plan.as_dict(), [finding.as_dict() for finding in plan.findings]], default=str)


def test_secrets_are_planned_by_their_names(site: Path) -> None:
    secrets = {"api-key": f"{CANARY} $HOME 100%", "admin_api_key": CANARY, "ssl_keyfile_password": CANARY}
    plan = planned(site, sglang_server_secret_args=secrets, sglang_server_args={"log_level": "warning"})
    assert not {rule for rule in rule_ids(plan) if rule.startswith("secret-")}
    assert plan.server is not None
    assert plan.server["secret_args"] == ["admin_api_key", "api_key", "ssl_keyfile_password"]
    assert plan.server["log_level"] == "warning"
    assert CANARY not in json.dumps(plan.as_dict())


def test_a_flag_that_the_release_has_not_yet_is_no_secret_of_it(site: Path) -> None:
    plan = planned(site, sglang_engine_version="0.5.7", sglang_server_secret_args={"admin_api_key": CANARY})
    assert "secret-arg-unknown" in rule_ids(plan)


def test_sglang_takes_one_configuration_file(site: Path) -> None:
    own = {"config": "/etc/sglang.yaml"}
    assert "secret-args-and-config" not in rule_ids(planned(site, sglang_server_args=own))
    plan = planned(site, sglang_server_args=own, sglang_server_secret_args={"api_key": CANARY})
    assert "secret-args-and-config" in rule_ids(plan)


def test_the_server_plan_holds_what_the_gate_asks_for(site: Path) -> None:
    args = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "tool_call_parser": "kimi_k2",
    }
    plan = planned(site, sglang_model_drafter="tiny/draft", sglang_server_args=args)
    assert plan.server is not None
    assert plan.server["speculation"] == {"algorithm": "EAGLE3", "steps": 3, "topk": 1, "draft_tokens": 4}
    assert (plan.server["tool_call_parser"], plan.server["decode_log_interval"]) == ("kimi_k2", 40)
    adapting = planned(
        site, sglang_model_drafter="tiny/draft", sglang_server_args={**args, "speculative_adaptive": True}
    )
    assert adapting.server is not None
    assert adapting.server["speculation"]["steps"] is None
    without = planned(site, sglang_model_drafter=None, sglang_server_args={}).server
    assert without is not None
    assert without["speculation"] is None


def test_a_lock_that_is_no_json(site: Path) -> None:
    broken = site.parent / "locks" / "broken.json"
    broken.write_text("{")
    plan = planned(site, sglang_model_target={"repo": "tiny/k2", "lock": "broken.json"})
    (finding,) = (one for one in plan.findings if one.rule == "model-lock-invalid")
    assert str(broken) in finding.message


def test_an_undefined_variable_is_a_finding() -> None:
    plan = plan_host("a1", {}, {"sglang_engine_version": "'site_version' is undefined"})
    (finding,) = plan.findings
    assert finding.rule == "variable-undefined"
    assert "site_version" in finding.message


def test_an_engine_lock_of_another_format_is_refused(site: Path) -> None:
    facts = site / "engine" / "lock.json"
    facts.write_text(facts.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(EngineLockProblem, match="format 2"):
        read_engine_lock(str(site / "engine"))


def test_the_digest_changes_with_either_file(site: Path) -> None:
    before = read_engine_lock(str(site / "engine")).digest
    (site / "engine" / "requirements.txt").write_text("sglang==0.5.19 --hash=sha256:" + "1" * 64 + "\n")
    assert read_engine_lock(str(site / "engine")).digest != before


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
YAML = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"sglang_engine_version": st.sampled_from(["0.5.11", "0.5.23", "9.9"]) | YAML},
        optional={name: YAML for name in DEFAULTS if name != "sglang_engine_version"},
    )
)
def test_whatever_the_variables_hold_there_is_a_plan_or_findings(variables: dict[str, Any]) -> None:
    plan = plan_host("a1", {**variables, "inventory_dir": "/nowhere"}, {})
    assert plan.findings or plan.report
    json.dumps(plan.as_dict(), default=str)


def test_every_shipped_lock_can_be_planned_with() -> None:
    assert {"0.5.11-cp311-x86_64", "0.5.11-cp312-x86_64", "0.5.23-cp311-x86_64", "0.5.23-cp312-x86_64"} <= set(
        shipped_locks()
    )
    for name in shipped_locks():
        plan = plan_host(
            "a1",
            {
                "sglang_engine_version": name.split("-")[0],
                "sglang_engine_lock": name,
                "sglang_server_args": {"model_path": "/m"},
                "sglang_plan_gpu": "h200",
            },
            {},
        )
        assert plan.engine is not None, plan.findings


def test_the_documented_defaults_are_the_plans_own() -> None:
    spec = yaml.safe_load((ROOT / "roles/sglang_plan/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = spec["argument_specs"]["main"]["options"]
    # where the plan is kept is said to the action by the role
    del options["sglang_plan_file"]
    assert {name: option.get("default") for name, option in options.items()} == DEFAULTS
