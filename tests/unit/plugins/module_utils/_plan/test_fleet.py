# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

from ansible_collections.inferops.serving.plugins.module_utils._plan.fleet import FleetPlan, plan_fleet
from ansible_collections.inferops.serving.plugins.module_utils._plan.host import plan_host
from ansible_collections.inferops.serving.plugins.module_utils._plan.places import Locate, nowhere, shown
from ansible_collections.inferops.serving.plugins.module_utils._plan.report import refusal, summary

GOOD = {
    "sglang_engine_version": "0.5.11",
    "sglang_plan_gpu": "rtx_pro_6000_blackwell",
    "sglang_model_target": "moonshotai/Kimi-K2.6",
    "sglang_model_drafter": "lightseekorg/kimi-k2.6-eagle3",
    "sglang_server_args": {"tp_size": 8},
}


#: Of unknown memory, so that nothing is too large for it.
ROOMY = {"sglang_plan_gpu": {"compute_capability": "12.0", "count": 8}}


def fleet(hosts: dict[str, dict[str, Any]], locate: Locate = nowhere) -> FleetPlan:
    plans = [plan_host(host, {**GOOD, **variables}, {}) for host, variables in hosts.items()]
    return plan_fleet(plans, lambda _host: locate)


def spec(**args: Any) -> dict[str, Any]:
    return {"sglang_server_args": {"tp_size": 8, "speculative_algorithm": "EAGLE3", **args}}


def test_different_mistakes_of_different_hosts_are_all_reported() -> None:
    planned = fleet({"a1": spec(speculative_num_draft_tokens=3), "a2": spec(no_such_flag=1), "a3": {}})
    assert {(problem.finding.rule, problem.hosts) for problem in planned.stopping} == {
        ("spec-steps-missing", ("a1",)),
        ("flag-unknown", ("a2",)),
    }
    text = refusal(planned)
    assert text.startswith("The plan refuses 2 of 3 hosts for 2 problems. No host was contacted")
    assert "spec-steps-missing on a1" in text
    assert "speculative_eagle_topk: 1" in text
    assert "flag-unknown on a2" in text


def test_the_same_mistake_of_many_hosts_is_said_once() -> None:
    planned = fleet({f"a{number}": spec(speculative_num_draft_tokens=3) for number in range(9)})
    (problem,) = planned.stopping
    assert len(problem.hosts) == 9
    assert "a0, a1, a2, a3, a4, a5 and 3 more" in refusal(planned)


def test_places_of_keys_and_of_whole_variables() -> None:
    def locate(variable: str, key: str | None) -> str | None:
        return f"vars.yml:{key}" if key == "speculative_num_draft_tokens" else f"vars.yml:{variable}"

    (problem,) = fleet({"a1": spec(speculative_num_draft_tokens=3)}, locate).stopping
    assert problem.places == ("vars.yml:speculative_num_draft_tokens",)
    (problem,) = fleet({"a1": {"sglang_engine_version": "0.5.8"}}, locate).stopping[:1]
    assert problem.places[0] == "vars.yml:sglang_engine_lock"


def test_one_port_twice_on_one_machine() -> None:
    machine = {"ansible_host": "gpu7"}
    named = [{**machine, "sglang_server_name": name} for name in ("one", "two")]
    planned = fleet({"a1": named[0], "a2": named[1], "b1": {"ansible_host": "gpu8"}})
    assert [problem.hosts for problem in planned.stopping if problem.finding.rule == "port-clash"] == [("a1",), ("a2",)]
    places = [{"port": 30001 + number, "tp_size": 4, "base_gpu_id": 4 * number} for number in range(2)]
    apart = fleet({f"a{number}": {**named[number], **spec(**places[number]), **ROOMY} for number in range(2)})
    assert apart.stopping == []


def test_one_address_with_forwarded_ports_is_as_many_machines() -> None:
    machine = {"ansible_host": "gateway.example.org"}
    assert fleet({f"a{port}": {**machine, "ansible_port": port} for port in (22, 2201, 2202)}).stopping == []
    same = fleet({"a1": {**machine, "ansible_port": 22}, "a2": machine})
    assert {problem.finding.rule for problem in same.stopping} == {"port-clash", "name-clash", "gpu-clash"}


def services(*each: dict[str, Any], **variables: Any) -> dict[str, dict[str, Any]]:
    """Services of one machine; ``env`` is the environment, everything else a server argument."""
    found = {}
    for number, args in enumerate(each):
        env = {"sglang_server_env": args["env"]} if "env" in args else {}
        args = {"port": 30001 + number, **{key: value for key, value in args.items() if key != "env"}}
        name = {"ansible_host": "gpu7", "sglang_server_name": f"s{number}"}
        found[f"a{number}"] = {**ROOMY, "sglang_server_args": args, **env, **name, **variables}
    return found


def gpu_findings(hosts: dict[str, dict[str, Any]]) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
    problems = fleet(hosts).stopping
    return [
        (problem.finding.rule, problem.hosts, dict(problem.finding.remedy.set))
        for problem in problems
        if problem.finding.rule in ("gpu-clash", "gpu-beyond")
    ]


def test_the_same_gpus_twice_on_one_machine() -> None:
    four = {"tp_size": 4}
    assert gpu_findings(services(four, four)) == [
        ("gpu-clash", ("a0",), {}),
        ("gpu-clash", ("a1",), {"base_gpu_id": 4}),
    ]
    (problem,) = [one for one in fleet(services(four, four)).stopping if one.hosts == ("a1",)]
    assert problem.finding.message.startswith("GPU 0, 1, 2, 3 of gpu7 is planned for a0 as well.")
    assert gpu_findings(services(four, {**four, "base_gpu_id": 4})) == []


def test_every_second_gpu_and_data_parallel_replicas_count() -> None:
    assert gpu_findings(services({"tp_size": 4, "gpu_id_step": 2}, {"tp_size": 1, "base_gpu_id": 1})) == []
    assert gpu_findings(services({"tp_size": 4, "gpu_id_step": 2}, {"tp_size": 1, "base_gpu_id": 6})) == [
        ("gpu-clash", ("a0",), {}),
        ("gpu-clash", ("a1",), {"base_gpu_id": 1}),
    ]
    two = {"tp_size": 2, "dp_size": 2}
    assert gpu_findings(services(two, {"tp_size": 2, "base_gpu_id": 2}))[1] == (
        "gpu-clash",
        ("a1",),
        {"base_gpu_id": 4},
    )
    assert gpu_findings(services({**two, "enable_dp_attention": True}, {"tp_size": 2, "base_gpu_id": 2})) == []


def test_the_visible_devices_are_those_that_count() -> None:
    first, second = ({"tp_size": 4, "env": {"CUDA_VISIBLE_DEVICES": one}} for one in ("0,1,2,3", "4, 5, 6, 7"))
    assert gpu_findings(services(first, second)) == []
    assert gpu_findings(services(first, first))[1] == ("gpu-clash", ("a1",), {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    assert gpu_findings(services(first, {"tp_size": 4, "base_gpu_id": 4})) == []
    # numbers and UUIDs cannot be compared, two UUIDs can
    uuid = {"tp_size": 1, "env": {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}}
    assert gpu_findings(services(first, uuid)) == []
    assert [rule for rule, _hosts, _remedy in gpu_findings(services(uuid, uuid))] == ["gpu-clash"] * 2
    hidden = {"tp_size": 2, "base_gpu_id": 3, "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}}
    assert gpu_findings(services(hidden)) == [("gpu-beyond", ("a0",), {"base_gpu_id": 2})]


def test_services_that_do_not_fit_together_share_evenly() -> None:
    assert gpu_findings(services({"tp_size": 8}, {"tp_size": 8})) == [
        ("gpu-clash", ("a0",), {"tp_size": 4, "base_gpu_id": 0}),
        ("gpu-clash", ("a1",), {"tp_size": 4, "base_gpu_id": 4}),
    ]


def test_more_gpus_than_the_machine_has() -> None:
    assert gpu_findings(services({"tp_size": 4, "base_gpu_id": 6})) == [("gpu-beyond", ("a0",), {"base_gpu_id": 4})]
    assert gpu_findings(services({"tp_size": 4, "base_gpu_id": 4})) == []
    assert gpu_findings(services({"tp_size": 4}, {"tp_size": 4}, sglang_plan_gpu="none")) == []
    assert gpu_findings(services({"tp_size": 4}, {"tp_size": 4}, sglang_plan_gpu=None))[1][2] == {"base_gpu_id": 4}


def test_one_name_twice_on_one_machine() -> None:
    machine = {"ansible_host": "gpu7"}
    planned = fleet(
        {
            "a1": {**machine, **spec(port=30001, tp_size=4), **ROOMY},
            "a2": {**machine, **spec(port=30002, tp_size=4, base_gpu_id=4), **ROOMY},
        }
    )
    assert {problem.finding.rule for problem in planned.stopping} == {"name-clash"}


def node(rank: int, **variables: Any) -> dict[str, Any]:
    return {
        **spec(nnodes=2, node_rank=rank, dist_init_addr="10.0.0.1:5000", tp_size=16),
        "ansible_host": f"gpu{rank}",
        "sglang_server_env": {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"},
        **variables,
    }


def stopping_rules(planned: FleetPlan) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for problem in planned.stopping:
        found[problem.finding.rule] = (*found.get(problem.finding.rule, ()), *problem.hosts)
    return found


def test_a_replica_over_two_hosts() -> None:
    assert stopping_rules(fleet({"a1": node(0), "a2": node(1)})) == {}
    assert stopping_rules(fleet({"a1": node(0)})) == {"replica-members": ("a1",)}
    assert stopping_rules(fleet({"a1": node(0), "a2": node(0, ansible_host="gpu9")})) == {
        "replica-members": ("a1", "a2")
    }
    other = {"sglang_model_drafter": "AQ-MedAI/Kimi-K26-eagle3"}
    assert stopping_rules(fleet({"a1": node(0), "a2": node(1, **other)})) == {"replica-mixed": ("a1", "a2")}


def test_nodes_need_an_address_and_an_interface() -> None:
    bare = {**spec(nnodes=2, node_rank=0, tp_size=16)}
    assert set(stopping_rules(fleet({"a1": bare}))) == {"nodes-without-address", "nodes-without-interface"}


def test_a_harmful_finding_stops_until_it_is_accepted() -> None:
    harmful = spec(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)
    harmful["sglang_server_args"]["speculative_algorithm"] = "EAGLE"
    (problem,) = fleet({"a1": harmful}).stopping
    assert problem.finding.rule == "eagle-named-for-eagle3"
    assert "sglang_plan_accept" in refusal(fleet({"a1": harmful}))
    accepted = fleet({"a1": {**harmful, "sglang_plan_accept": ["eagle-named-for-eagle3"]}})
    assert accepted.stopping == []
    assert "accepted by sglang_plan_accept" in summary(accepted)


def test_the_summary_says_what_will_run() -> None:
    text = summary(
        fleet({"a1": spec(speculative_num_draft_tokens=3, speculative_num_steps=1, speculative_eagle_topk=1)})
    )
    assert "a1: SGLang 0.5.11 on 8 x rtx_pro_6000_blackwell" in text
    assert "--tp-size 8" in text
    assert "rewrites speculative_num_draft_tokens from 3 to 2" in text


def test_a_place_below_the_current_folder_is_shown_relative() -> None:
    assert shown("/site/group_vars/all.yml:3:1", "/site") == "group_vars/all.yml:3:1"
    assert shown("/elsewhere/all.yml:3:1", "/site") == "/elsewhere/all.yml:3:1"
    assert shown("<CLI option '-e'>", "/site") == "<CLI option '-e'>"
