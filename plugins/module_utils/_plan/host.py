# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One host's plan: what runs there, with which files, and everything that speaks against it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import typing as t

from .._server.expect import NoJmespath, problems
from .._server.gate import SPECULATION
from .._sglang.arguments import SECRET_FLAGS
from .._sglang.findings import Finding, Remedy, find
from .._sglang.flags import FlagTable, flag_table, nearest_known
from .._sglang.hardware import Gpu, GpuProblem, read_gpu
from .._sglang.judge import ALGORITHM, DRAFT_PATH, NUMBERS, Report, judge
from .._sglang.memory import ranks_of_one_host
from .._sglang.models import DRAFTERS, TARGETS, Model, from_catalogue
from .._sglang.versions import Release
from .._store.errors import StoreError
from .._store.lock import ModelLock, parse_lock
from .devices import Devices, devices
from .engine_lock import EngineLock, EngineLockProblem, engine_lock_folder, read_engine_lock

#: Every variable the plan reads, with its default. The argument specification of sglang_plan repeats them for people.
DEFAULTS: dict[str, t.Any] = {
    "sglang_engine_version": "0.5.23",
    "sglang_engine_lock": None,
    "sglang_engine_python": "3.12",
    "sglang_engine_root": "/opt/sglang",
    "sglang_model_target": None,
    "sglang_model_drafter": None,
    "sglang_model_store": "/srv/models",
    "sglang_model_lock_dir": "../locks",
    "sglang_server_name": "main",
    "sglang_server_args": {},
    "sglang_server_env": {},
    "sglang_server_secret_args": {},
    "sglang_server_expect": [],
    "sglang_plan_gpu": None,
    "sglang_plan_accept": [],
    "sglang_plan_models": {},
}
#: Variables that hold a mapping, and variables that hold a list.
MAPPINGS = ("sglang_server_args", "sglang_server_env", "sglang_server_secret_args", "sglang_plan_models")
#: The mapping whose values are never shown.
SECRETS = "sglang_server_secret_args"
LISTS = ("sglang_plan_accept", "sglang_server_expect")
TEXTS = tuple(
    name
    for name in DEFAULTS
    if name not in (*MAPPINGS, *LISTS, "sglang_model_target", "sglang_model_drafter", "sglang_plan_gpu")
)

_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 30000
_DEFAULT_LOG_LEVEL = "info"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclasses.dataclass(frozen=True)
class PlannedModel:
    """A model that a host must hold. ``lock`` is a path on the controller, None where there is no such file."""

    role: str
    facts: Model
    lock_path: str | None
    lock: ModelLock | None
    path: str


@dataclasses.dataclass(frozen=True)
class HostPlan:
    """The judgement of one host. The parts are None where the findings left nothing to plan with."""

    host: str
    address: str
    findings: tuple[Finding, ...]
    accepted: frozenset[str] = frozenset()
    release: str | None = None
    gpu: Gpu | None = None
    engine: t.Mapping[str, t.Any] | None = None
    models: tuple[PlannedModel, ...] = ()
    store: str | None = None
    server: t.Mapping[str, t.Any] | None = None
    report: Report | None = None
    filled: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    devices: Devices | None = None

    def as_dict(self) -> dict[str, t.Any]:
        """The plan as the roles and other programs read it."""
        return {
            "host": self.host,
            "release": self.release,
            "gpu": self.gpu.as_dict() if self.gpu else None,
            "confidence": self.report.confidence if self.report else None,
            "engine": self.engine,
            "model": {"store": self.store, "models": [_model_dict(model) for model in self.models]},
            "server": self.server,
            "filled": dict(self.filled),
            "resolved": dict(self.report.resolved) if self.report else {},
        }


def plan_host(host: str, variables: t.Mapping[str, t.Any], unreadable: t.Mapping[str, str]) -> HostPlan:
    """Plan one host.

    :param variables: what of the host's variables the plan reads: :data:`DEFAULTS`, inventory_dir, ansible_host and
        ansible_port.
    :param unreadable: variables that could not be templated, with the reason.
    """
    return _Planner(host, variables, unreadable).plan()


def model_entry(written: t.Any) -> dict[str, t.Any]:
    """A value of sglang_model_target or sglang_model_drafter that has no problem, in its form as a mapping."""
    entry: dict[str, t.Any] = dict(written) if isinstance(written, t.Mapping) else {"repo": written}
    return {**entry, "repo": str(entry["repo"])}


def model_lock_path(entry: t.Mapping[str, t.Any], lock_dir: str, inventory_dir: str | None) -> str:
    """Where the controller has the lock of a model."""
    name = str(entry.get("lock") or f"{entry['repo'].replace('/', '--')}.json")
    return os.path.normpath(os.path.join(inventory_dir or "", lock_dir, name))


class _Planner:
    def __init__(self, host: str, variables: t.Mapping[str, t.Any], unreadable: t.Mapping[str, str]) -> None:
        self.host = host
        self.address = str(variables.get("ansible_host") or host)
        # behind one address with forwarded ports there are as many machines
        if str(variables.get("ansible_port") or 22) != "22":
            self.address += f":{variables['ansible_port']}"
        self.base = variables.get("inventory_dir")
        self.findings: list[Finding] = []
        # rules about variables hold for every release
        self.release = Release.parse("0")
        self.values = {name: self._value(name, variables, unreadable) for name in DEFAULTS}

    def _value(self, name: str, variables: t.Mapping[str, t.Any], unreadable: t.Mapping[str, str]) -> t.Any:
        default = DEFAULTS[name]
        if name in unreadable:
            self._find("variable-undefined", name, variable=name, problem=unreadable[name])
            return default
        value = variables.get(name)
        if value is None:
            return default
        problem = _type_problem(name, value)
        if problem:
            self._find("variable-type", name, variable=name, problem=problem)
            return default
        return value

    def _find(self, rule: str, *keys: str, remedy: Remedy | None = None, **words: t.Any) -> None:
        self.findings.append(find(rule, self.release, keys, remedy, **words))

    def plan(self) -> HostPlan:
        self._expectations()
        release = self._release()
        accepted = frozenset(map(str, self.values["sglang_plan_accept"]))
        if release is None:
            return HostPlan(self.host, self.address, tuple(self.findings), accepted)
        self.release = release
        gpu = self._gpu()
        engine = self._engine()
        target = self._model("sglang_model_target", TARGETS)
        drafter = self._model("sglang_model_drafter", DRAFTERS)
        args, filled = self._server_args(target, drafter, gpu)
        by_dest = _by_dest(args, flag_table(nearest_known(release)))
        report = judge(
            args,
            release,
            gpu,
            target.facts if target else self._named(TARGETS, by_dest.get("model_path")),
            drafter.facts if drafter else self._named(DRAFTERS, by_dest.get(DRAFT_PATH)),
            {str(name): str(value) for name, value in self.values["sglang_server_env"].items()},
        )
        self._secret_args(by_dest)
        self._paths(by_dest)
        self._nodes(by_dest)
        if by_dest.get("model_path") is None:
            self._find("model-path-missing", "sglang_model_target", remedy=Remedy(variable="sglang_model_target"))
        models = tuple(model for model in (target, drafter) if model)
        return HostPlan(
            host=self.host,
            address=self.address,
            findings=(*self.findings, *report.findings),
            accepted=accepted,
            release=str(release),
            gpu=gpu,
            engine=engine,
            models=models,
            store=self.values["sglang_model_store"],
            server=self._server(by_dest, report, engine, models),
            report=report,
            filled=filled,
            devices=devices(by_dest, self.values["sglang_server_env"]),
        )

    # ---- the parts --------------------------------------------------------------------------------

    def _release(self) -> Release | None:
        written = self.values["sglang_engine_version"]
        if any("sglang_engine_version" in finding.keys for finding in self.findings):
            return None
        try:
            return Release.parse(str(written))
        except ValueError as exc:
            self._find("release-unreadable", "sglang_engine_version", problem=exc)
            return None

    def _expectations(self) -> None:
        try:
            found = problems(self.values["sglang_server_expect"])
        except NoJmespath:
            self._find("expectation-package", "sglang_server_expect")
            return
        for problem in found:
            self._find("expectation", "sglang_server_expect", problem=problem)

    def _gpu(self) -> Gpu | None:
        try:
            gpu = read_gpu(self.values["sglang_plan_gpu"])
        except GpuProblem as exc:
            self._find("gpu-unreadable", "sglang_plan_gpu", problem=exc)
            return None
        if gpu is None:
            self._find("gpu-unnamed", "sglang_plan_gpu")
        return gpu

    def _engine(self) -> dict[str, t.Any] | None:
        version = str(self.values["sglang_engine_version"])
        python = str(self.values["sglang_engine_python"])
        name = self.values["sglang_engine_lock"] or f"{version}-cp{python.replace('.', '')}-x86_64"
        try:
            lock = _read_engine_lock(engine_lock_folder(str(name), self.base))
        except EngineLockProblem as exc:
            self._find("engine-lock-missing", "sglang_engine_lock", "sglang_engine_version", lock=name, problem=exc)
            return None
        if lock.sglang != version:
            self._find(
                "engine-lock-release",
                "sglang_engine_version",
                "sglang_engine_lock",
                lock=name,
                locked=lock.sglang,
            )
            return None
        root = str(self.values["sglang_engine_root"])
        return {
            "root": root,
            "version": version,
            "lock": lock.folder,
            "digest": lock.digest,
            "path": f"{root}/engines/{version}-{lock.digest}",
            "python": lock.python,
            "stand_ins": lock.stand_ins,
        }

    def _model(self, variable: str, kind: str) -> PlannedModel | None:
        written = self.values[variable]
        if written is None:
            return None
        entry = model_entry(written)
        repo = entry["repo"]
        facts = from_catalogue(kind, repo, self.values["sglang_plan_models"]) or Model(repo=repo)
        path = model_lock_path(entry, str(self.values["sglang_model_lock_dir"]), self.base)
        lock, known = self._model_lock(variable, repo, path)
        own: t.Mapping[str, t.Any] = entry.get("config") or {}
        facts = dataclasses.replace(
            facts,
            config={**facts.config, **known.get("config", {}), **own},
            total_size=lock.total_size if lock else facts.total_size,
            tensors=known.get("tensors", {}),
        )
        if lock is None and not facts.config:
            self._find("model-unknown", variable, repo=repo)
        store = f"{self.values['sglang_model_store']}/models--{repo.replace('/', '--')}"
        return PlannedModel(
            role="target" if kind == TARGETS else "drafter",
            facts=facts,
            lock_path=path,
            lock=lock,
            path=f"{store}/snapshots/{lock.revision}" if lock else f"{store}/current",
        )

    def _named(self, kind: str, path: t.Any) -> Model | None:
        """The catalogue's model where a server argument names a repository itself."""
        return from_catalogue(kind, path, self.values["sglang_plan_models"]) if isinstance(path, str) else None

    def _model_lock(self, variable: str, repo: str, path: str) -> tuple[ModelLock | None, t.Mapping[str, t.Any]]:
        try:
            lock, known = read_model_lock(path)
        except FileNotFoundError:
            self._find("model-lock-missing", variable, repo=repo, path=path)
            return None, {}
        except (OSError, ValueError, StoreError) as exc:
            self._find("model-lock-invalid", variable, path=path, problem=exc)
            return None, {}
        if lock.repo != repo:
            self._find("model-lock-invalid", variable, path=path, problem=f"it locks {lock.repo}, not {repo}")
            return None, {}
        return lock, known

    def _secret_args(self, by_dest: t.Mapping[str, t.Any]) -> None:
        """What SGLang reads from a file: flags of the release that hold secrets, with values that survive the way."""
        table = flag_table(nearest_known(self.release))
        secrets = self.values[SECRETS]
        for key, value in secrets.items():
            key = str(key)
            flag, problem = table.find(key), None
            if flag is None:
                problem = f"no flag of SGLang {self.release}"
            elif flag.dest not in SECRET_FLAGS:
                problem = f"no secret; secrets are {', '.join(SECRET_FLAGS)}"
            if problem:
                self._find(
                    "secret-arg-unknown", key, key=key, remedy=Remedy(remove=(key,), variable=SECRETS), problem=problem
                )
            elif problem := _secret_problem(value):
                self._find("secret-arg-value", key, key=key, remedy=Remedy(variable=SECRETS), problem=problem)
        if secrets and by_dest.get("config") is not None:
            self._find("secret-args-and-config", "config", remedy=Remedy(remove=("config",)))
        named = self._secret_names()
        if "admin_api_key" in named and "api_key" not in named:
            self._find("secret-admin-alone", "admin_api_key", remedy=Remedy(variable=SECRETS))

    def _secret_names(self) -> list[str]:
        table = flag_table(nearest_known(self.release))
        found = (table.find(str(key)) for key in self.values[SECRETS])
        return sorted(flag.dest for flag in found if flag is not None)

    def _paths(self, by_dest: t.Mapping[str, t.Any]) -> None:
        """The unit runs offline: a repository's name would only be found in a cache that nobody filled."""
        for key in ("model_path", DRAFT_PATH):
            path = by_dest.get(key)
            if isinstance(path, str) and not path.startswith("/"):
                self._find("model-path-not-local", key, key=key, path=path)

    def _nodes(self, by_dest: t.Mapping[str, t.Any]) -> None:
        """What several hosts need in order to find each other."""
        if not isinstance(by_dest.get("nnodes"), int) or by_dest["nnodes"] < 2:
            return
        if not by_dest.get("dist_init_addr"):
            self._find("nodes-without-address", "nnodes", nodes=by_dest["nnodes"])
        if not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} <= set(self.values["sglang_server_env"]):
            self._find("nodes-without-interface", "nnodes", nodes=by_dest["nnodes"])

    def _server_args(
        self, target: PlannedModel | None, drafter: PlannedModel | None, gpu: Gpu | None
    ) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """What the operator gave, before it what follows from the models and SGLang's defaults."""
        given = self.values["sglang_server_args"]
        table = flag_table(nearest_known(self.release))
        # A key of no flag counts as well: who misspelt a number must not get one from the catalogue instead.
        named = {flag.dest if flag else str(key).replace("-", "_") for key, flag in ((k, table.find(k)) for k in given)}
        misspelt = any("speculative" in name for name in named if table.find(name) is None)
        offered: dict[str, t.Any] = {}
        if target:
            offered.update(model_path=target.path, served_model_name=target.facts.repo, **target.facts.args)
            if not named.intersection(("tp_size", "pp_size", "nnodes")):
                offered["tp_size"] = ranks_of_one_host(target.facts, gpu)
        offered.update(host=_DEFAULT_HOST, port=_DEFAULT_PORT)
        if drafter:
            offered[ALGORITHM] = drafter.facts.algorithm
            offered[DRAFT_PATH] = drafter.path
            if not misspelt and not named.intersection(NUMBERS):
                offered.update(drafter.facts.args)
        filled = {
            key: value
            for key, value in offered.items()
            if value is not None and key not in named and table.find(key) is not None
        }
        return {**filled, **given}, filled

    def _server(
        self,
        by_dest: t.Mapping[str, t.Any],
        report: Report,
        engine: t.Mapping[str, t.Any] | None,
        models: t.Sequence[PlannedModel],
    ) -> dict[str, t.Any]:
        name = str(self.values["sglang_server_name"])
        listen = str(by_dest.get("host", _DEFAULT_HOST))
        port = by_dest.get("port", _DEFAULT_PORT)
        return {
            "name": name,
            "unit": f"sglang-{name}.service",
            "argv": list(report.argv),
            "port": port,
            "url": f"http://{_EVERYWHERE.get(listen, listen)}:{port}",
            "served_model_name": by_dest.get("served_model_name") or by_dest.get("model_path"),
            "engine_path": engine["path"] if engine else None,
            "read_only_paths": [model.path for model in models],
            "speculative": bool(report.resolved.get(ALGORITHM)),
            "log_level": str(by_dest.get("log_level") or _DEFAULT_LOG_LEVEL),
            "secret_args": self._secret_names(),
            "speculation": _speculation(by_dest, report),
            "decode_log_interval": by_dest.get("decode_log_interval") or 40,
            "tool_call_parser": by_dest.get("tool_call_parser"),
            "grammar_backend": by_dest.get("grammar_backend"),
            "nodes": {key: by_dest.get(key) for key in ("nnodes", "node_rank", "dist_init_addr")},
        }


def _speculation(by_dest: t.Mapping[str, t.Any], report: Report) -> dict[str, t.Any] | None:
    """What the running server must say of its speculation."""
    resolved = report.resolved
    if not resolved.get(ALGORITHM):
        return None
    # the server itself changes the numbers while it adapts
    own = (ALGORITHM,) if by_dest.get("speculative_adaptive") else tuple(SPECULATION.values())
    return {name: resolved.get(key) if key in own else None for name, key in SPECULATION.items()}


def _model_dict(model: PlannedModel) -> dict[str, t.Any]:
    return {
        "role": model.role,
        "repo": model.facts.repo,
        "lock": model.lock_path,
        "locked": model.lock is not None,
        "revision": model.lock.revision if model.lock else model.facts.revision,
        "total_size": model.lock.total_size if model.lock else None,
        "path": model.path,
    }


def _by_dest(args: t.Mapping[str, t.Any], table: FlagTable) -> dict[str, t.Any]:
    """The arguments by the name that SGLang has for them, whichever alias was used."""
    found = ((table.find(str(key)), value) for key, value in args.items())
    return {flag.dest: value for flag, value in found if flag is not None}


def _type_problem(name: str, value: t.Any) -> str | None:
    if name in MAPPINGS:
        if not isinstance(value, t.Mapping):
            return "is no mapping" if name == SECRETS else f"is {value!r}; it is a mapping"
        if name == "sglang_server_env":
            return _env_problem(value)
    elif name in LISTS:
        if not isinstance(value, (list, tuple)):
            return f"is {value!r}; it is a list"
    elif name in ("sglang_model_target", "sglang_model_drafter"):
        return model_problem(value)
    elif name in TEXTS:
        if isinstance(value, (dict, list, tuple, bool)):
            return f"is {value!r}; it is one text"
        if isinstance(value, float):
            return f"is the number {value!r}; write it in quotes"
        if name == "sglang_server_name" and not _NAME.match(str(value)):
            return f"is {value!r}; letters, digits, '_', '.' and '-' make the name of a unit"
    return None


def model_problem(value: t.Any) -> str | None:
    """What is wrong with a value of sglang_model_target or sglang_model_drafter, None when nothing is."""
    if isinstance(value, str) and value.strip():
        return None
    if not isinstance(value, t.Mapping) or not isinstance(value.get("repo"), str):
        return f"is {value!r}; it is a repository such as org/name, or a mapping with repo"
    unknown = set(value) - {"repo", "lock", "config"}
    if unknown:
        return f"has no key {', '.join(sorted(map(str, unknown)))}; it has repo, lock and config"
    if not isinstance(value.get("config", {}), t.Mapping):
        return "has a config that is no mapping"
    return None


def _secret_problem(value: t.Any) -> str | None:
    """What is wrong with a secret, in words that do not show it."""
    if not isinstance(value, str):
        return "is no text"
    if not value:
        return "is empty"
    if value.startswith("-"):
        return "begins with a dash"
    return None if value.isascii() and value.isprintable() else "has other characters than printable ASCII"


def _env_problem(value: t.Mapping[str, t.Any]) -> str | None:
    for name, one in value.items():
        if not _ENV_NAME.match(str(name)):
            return f"has {name!r}, which is no name of an environment variable"
        if isinstance(one, (dict, list, tuple, bool)) or one is None:
            return f"has {one!r} for {name}; write the exact text in quotes"
    return None


@functools.cache
def _read_engine_lock(folder: str) -> EngineLock:
    return read_engine_lock(folder)


@functools.cache
def read_model_lock(path: str) -> tuple[ModelLock, t.Mapping[str, t.Any]]:
    """A lock file, and of its facts config and tensors where they are there.

    :raises OSError: it cannot be read.
    :raises ValueError, StoreError: it is no lock.
    """
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    lock = parse_lock(document)
    facts = document.get("facts")
    known = facts if isinstance(facts, t.Mapping) else {}
    return lock, {key: known[key] for key in ("config", "tensors") if isinstance(known.get(key), t.Mapping)}
