# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A server as the text that starts it tells of it: a shell command, a unit file, a container command, a compose file.

Nothing is run, looked up or read beside the text. A note never repeats a value that could be a secret: of options and
settings that may hold anything, it gives the names.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import typing as t

from .._server import systemd
from .._sglang.command_line import find_launcher

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_TAG = re.compile(r"v?(\d+\.\d+\.\d+(?:rc\d+)?(?:\.post\d+)?)(?![\d.])")
_RELEASE_IN_PATH = re.compile(r"(?<![\d.])v?(0\.\d+\.\d+(?:rc\d+)?(?:\.post\d+)?)(?![\d.])")
_COMPOSE = re.compile(r"^services\s*:\s*(#.*)?$", re.MULTILINE)
_EXEC_START = re.compile(r"^\s*ExecStart\s*=", re.MULTILINE)
_SECTION = re.compile(r"\[([A-Za-z-]+)\]\Z")
_PYTHON = re.compile(r"(.*/)?python[\d.]*\Z")
_SHELLS = ("sh", "bash", "dash", "zsh")
_OPERATORS = "();<>|&\n"
#: Wrappers whose words are settings and never secrets.
_TELLING = ("chrt", "ionice", "nice", "numactl", "stdbuf", "sudo", "taskset")
_WRAPPERS = (*_TELLING, "command", "env", "exec", "nohup", "setsid", "time", "timeout")

_ENGINES = ("docker", "podman", "nerdctl")
_SHORT = {
    "-c": "--cpu-shares",
    "-d": "--detach",
    "-e": "--env",
    "-h": "--hostname",
    "-i": "--interactive",
    "-l": "--label",
    "-m": "--memory",
    "-P": "--publish-all",
    "-p": "--publish",
    "-q": "--quiet",
    "-t": "--tty",
    "-u": "--user",
    "-v": "--volume",
    "-w": "--workdir",
}
#: The options of ``docker run`` and ``podman run`` that take no value.
_SWITCHES = frozenset(
    (
        "--detach",
        "--disable-content-trust",
        "--env-host",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--no-hostname",
        "--no-hosts",
        "--oom-kill-disable",
        "--passwd",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--replace",
        "--rm",
        "--rmi",
        "--rootfs",
        "--sig-proxy",
        "--tls-verify",
        "--tty",
        "--unsetenv-all",
    )
)
#: Options that say nothing of the server.
_OF_NO_CONCERN = frozenset(
    (
        "--detach",
        "--init",
        "--interactive",
        "--name",
        "--pull",
        "--quiet",
        "--replace",
        "--restart",
        "--rm",
        "--sig-proxy",
        "--tty",
    )
)
_OPTIONS_READ = ("--env", "--env-file", "--publish", "--entrypoint", "--gpus")
#: Options whose values are settings and never secrets.
_TELLING_OPTIONS = frozenset(
    (
        "--cap-add",
        "--cpus",
        "--cpuset-cpus",
        "--cpuset-mems",
        "--device",
        "--group-add",
        "--ipc",
        "--memory",
        "--mount",
        "--network",
        "--net",
        "--pid",
        "--platform",
        "--runtime",
        "--security-opt",
        "--shm-size",
        "--ulimit",
        "--user",
        "--userns",
        "--volume",
        "--workdir",
    )
)
_COMPOSE_READ = ("image", "command", "entrypoint", "environment", "ports", "volumes", "container_name", "env_file")
_COMPOSE_OF_NO_CONCERN = ("restart", "pull_policy", "stdin_open", "tty", "init")
_VARIABLES = "Its variables belong in sglang_server_env."


class AdoptProblem(ValueError):
    """Nothing can be adopted from the text. Says why, and repeats no value of it."""


@dataclasses.dataclass
class Running:
    """What a text tells of a server. ``mounts`` and ``ports`` are pairs of the host's and the container's."""

    argv: list[str] = dataclasses.field(default_factory=list)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    release: str | None = None
    name: str | None = None
    ports: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    mounts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    gpus: int | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str) -> None:
        """Something that the operator must know of, once."""
        if text not in self.notes:
            self.notes.append(text)


def read_running(text: str) -> Running:
    """Read one server.

    :raises AdoptProblem: the text starts no SGLang server, several, or cannot be split into words.
    """
    if not text.strip():
        raise AdoptProblem("The text is empty")
    found = Running()
    if "\0" in text:
        # /proc/<pid>/cmdline: words that need no splitting
        started = _command(text.rstrip("\0\n").split("\0"), found)
    elif _COMPOSE.search(text):
        started = _compose(text, found)
    elif _EXEC_START.search(text):
        started = _unit(text, found)
    else:
        started = _script(text, found)
    if not started:
        raise AdoptProblem("The text starts no SGLang server: neither sglang.launch_server nor sglang serve is in it")
    _gpus_of_environment(found)
    return found


# ---- shell ----------------------------------------------------------------------------------------------------------


def _script(text: str, found: Running) -> bool:
    """A command line or a script; whether a server was in it."""
    assigned: dict[str, str] = {}
    exported: dict[str, str] = {}
    before: list[str] = []
    servers = 0
    for command in _commands(text):
        words = _expanded(command[1:] if command[0] == "$" else command, assigned)
        names = words[1:] if words[:1] == ["export"] else words
        assignments = [_ASSIGNMENT.match(word) for word in names]
        if names and all(assignments):
            values = {one.group(1): one.group(2) for one in assignments if one}
            assigned.update(values)
            if names is not words:
                exported.update(values)
        elif servers and _command(words, Running()):
            servers += 1
        elif not servers and _command(words, found):
            servers = 1
            found.env = {**exported, **found.env}
        elif not servers:
            before += [os.path.basename(word) for word in words if not _ASSIGNMENT.match(word)][:1]
            _release_in(words, found)
    if servers > 1:
        found.note(f"The text starts {servers} servers; only the first is here. Give the others one by one.")
    if servers and before:
        found.note(f"The commands before the server are not carried over: {', '.join(dict.fromkeys(before))}.")
    return servers > 0


def _commands(text: str) -> t.Iterator[list[str]]:
    """The commands of a script as words, without redirections."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t\r]*\n", " ", "\n".join(lines))
    # the digit of 2>&1 would be read as a word
    joined = re.sub(r"(?<=\s)[012](?=[<>])", "", joined)
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    try:
        for word in lexer:
            if word and not word.strip(_OPERATORS):
                redirected = word[-1] in "<>" or word[-2:] == ">&"
                if not redirected and words:
                    yield words
                    words = []
            elif redirected:
                redirected = False
            else:
                words.append(word)
    except ValueError as exc:
        raise AdoptProblem(f"The command cannot be split into words: {exc}") from exc
    if words:
        yield words


def _expanded(words: t.Sequence[str], values: t.Mapping[str, str]) -> list[str]:
    """References to variables that the text itself sets, filled in; a secret stays a reference."""
    known = {name: value for name, value in values.items() if not names_secret(name)}

    def value(reference: re.Match[str]) -> str:
        return known.get(reference.group(1) or reference.group(2), reference.group())

    expanded = []
    for word in words:
        filled = _REFERENCE.sub(value, word)
        if filled != word and _REFERENCE.fullmatch(word) and filled.lstrip().startswith("-"):
            # a variable that holds several arguments
            expanded += filled.split()
        else:
            expanded.append(filled)
    return expanded


def _command(words: t.Sequence[str], found: Running) -> bool:
    """One command with its wrappers; whether it starts a server."""
    launcher = find_launcher(words)
    engine = next((place for place, word in enumerate(words) if os.path.basename(word) in _ENGINES), None)
    if engine is not None and "run" in words[engine:] and (launcher is None or engine < launcher[0]):
        _prefix(words[:engine], Running())
        return _container(words[list(words).index("run", engine) + 1 :], found)
    script = _inner_script(words)
    if script is not None and (launcher is None or script < launcher[0]):
        inner = Running()
        if not _script(words[script], inner):
            return False
        _prefix(words[:script], found)
        found.argv, found.release = inner.argv, inner.release or found.release
        found.env.update(inner.env)
        for note in inner.notes:
            found.note(note)
        return True
    if launcher is not None:
        _prefix(words[: launcher[0]], found)
        _release_in(words[: launcher[0] + 1], found)
        found.argv = list(words[launcher[1] :])
        return True
    if words and words[0].startswith("--"):
        found.argv = list(words)
        return True
    return False


def _inner_script(words: t.Sequence[str]) -> int | None:
    """The place of the script in ``bash -c '...'``."""
    for place, word in enumerate(words[:-1]):
        if os.path.basename(word) in _SHELLS:
            for option in range(place + 1, len(words) - 1):
                if re.match(r"-[a-z]*c\Z", words[option]):
                    return option + 1
    return None


def _prefix(words: t.Sequence[str], found: Running) -> None:
    """What stands before the interpreter: assignments, and wrappers, which are noted."""
    wrappers: list[list[str]] = []
    for word in words:
        assignment = _ASSIGNMENT.match(word)
        name = os.path.basename(word)
        if assignment and not (wrappers and wrappers[-1][0] not in _WRAPPERS):
            found.env[assignment.group(1)] = assignment.group(2)
        elif _PYTHON.match(word) or name in _SHELLS:
            break
        elif not wrappers or name in _WRAPPERS:
            wrappers.append([name])
        else:
            wrappers[-1].append(word)
    shown = [" ".join(one) if one[0] in _TELLING else one[0] for one in wrappers if one[0] not in ("env", "exec")]
    if shown:
        found.note(f"The wrappers of the command are not carried over: {', '.join(shown)}.")


def _release_in(words: t.Iterable[str], found: Running) -> None:
    for word in words:
        release = _RELEASE_IN_PATH.search(word) if "/" in word else None
        if release and found.release is None:
            found.release = release.group(1)


# ---- systemd --------------------------------------------------------------------------------------------------------


def _unit(text: str, found: Running) -> bool:
    """A unit file: the last ExecStart, with Environment= as far as the unit holds it."""
    commands: list[str] = []
    environment: dict[str, str] = {}
    others: list[str] = []
    for section, name, value in _settings(text):
        if section not in ("", "Service"):
            continue
        if name == "ExecStart":
            commands = [*commands, value] if value else []
        elif name == "Environment":
            if not value:
                environment.clear()
            environment.update(_assignments(value, found))
        elif name == "EnvironmentFile" and value:
            found.note(f"The file {value.lstrip('-')} of EnvironmentFile was not read. {_VARIABLES}")
        elif name not in others:
            others.append(name)
    if len(commands) != 1:
        raise AdoptProblem(f"The unit has {len(commands)} commands in ExecStart; a server has one")
    command = commands[0].lstrip("@-:+!|")
    orders = commands[0][: len(commands[0]) - len(command)]
    words = _words(command, "ExecStart")
    if "@" in orders:
        del words[1:2]
    words = [_unspecified(word, "ExecStart", found) for word in words]
    if ":" not in orders:
        words = [word.replace("$$", "$") for word in _expanded_by_systemd(words, environment)]
    if not _command(words, found):
        return False
    found.env = {**environment, **found.env}
    if others:
        found.note(f"The role writes a unit of its own; these settings are not carried over: {', '.join(others)}.")
    return True


def _settings(text: str) -> t.Iterator[tuple[str, str, str]]:
    """(section, name, value) of each setting, continued lines joined."""
    section, pending = "", ""
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", ";")):
            continue
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1] + " "
            continue
        whole, pending = (pending + line).strip(), ""
        header = _SECTION.match(whole)
        name, equals, value = whole.partition("=")
        if header:
            section = header.group(1)
        elif equals:
            yield section, name.strip(), value.strip()
    if pending:
        name, _equals, value = pending.partition("=")
        yield section, name.strip(), value.strip()


def _words(text: str, setting: str) -> list[str]:
    try:
        return systemd.read_words(text)
    except ValueError as exc:
        raise AdoptProblem(f"{setting} cannot be split into words: {exc}") from exc


def _assignments(value: str, found: Running) -> dict[str, str]:
    matches = [_ASSIGNMENT.match(word) for word in _words(value, "Environment")]
    return {one.group(1): _unspecified(one.group(2), "Environment", found) for one in matches if one}


def _unspecified(word: str, setting: str, found: Running) -> str:
    """A word with %% as one percent sign; other specifiers stay, since only the host knows them."""
    for specifier in re.findall(r"%[^%]", word.replace("%%", "")):
        found.note(f"{setting} holds the specifier {specifier}, which only the host can fill in; write its value.")
    return word.replace("%%", "%")


def _expanded_by_systemd(words: t.Sequence[str], environment: t.Mapping[str, str]) -> list[str]:
    # $$ is a dollar sign: kept apart while references are filled in
    return [word.replace("\0", "$$") for word in _expanded([word.replace("$$", "\0") for word in words], environment)]


# ---- containers -----------------------------------------------------------------------------------------------------


def _container(words: t.Sequence[str], found: Running) -> bool:
    """What follows ``docker run``: options, image, command."""
    options, rest = _options(words)
    if not rest:
        return False
    told: list[str] = []
    entrypoint: list[str] = []
    for name, value in options:
        if name == "--env":
            _variable(value, found)
        elif name == "--env-file":
            found.note(f"The file {value} was not read. {_VARIABLES}")
        elif name == "--publish":
            _publish(value, found)
        elif name == "--entrypoint":
            entrypoint = [value]
        elif name == "--gpus":
            _gpus(value, found)
        if name == "--name":
            found.name = value
        elif name == "--volume":
            _mount(value, found)
        if name not in _OF_NO_CONCERN and name not in _OPTIONS_READ:
            told.append(f"{name} {value}".rstrip() if name in _TELLING_OPTIONS else name)
    _image(rest[0], found)
    if not _command([*entrypoint, *rest[1:]], found):
        raise AdoptProblem("The container's command starts no SGLang server that the text names")
    if told:
        found.note(f"Options of the container that are not carried over: {', '.join(told)}.")
    return True


def _options(words: t.Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options up to the image by their long names, and the image with its command."""
    options: list[tuple[str, str]] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            # several switches in one word (-itd), the last of which may take a value (-e)
            name, value, equals = _SHORT.get(word[:2], word[:2]), word[2:].lstrip("="), word[2:]
            if name in _SWITCHES:
                options.append((name, ""))
                if value:
                    rest.insert(0, f"-{value}")
                continue
        if name not in _SWITCHES and not equals:
            value = rest.pop(0) if rest else ""
        options.append((name, value))
    return options, rest


def _variable(value: str, found: Running) -> None:
    name, equals, text = value.partition("=")
    if equals:
        found.env[name] = text
    elif name:
        found.note(f"The value of {name} came from the environment of the command; set it in sglang_server_env.")


def _publish(value: str, found: Running) -> None:
    """``[address:]host:container[/tcp]``; a port without the host's half is published at random."""
    parts = value.partition("/")[0].rsplit(":", 2)
    if len(parts) >= 2:
        found.ports.append((parts[0] if len(parts) == 3 else "", parts[-2], parts[-1]))


def _mount(value: str, found: Running) -> None:
    parts = value.split(":")
    if len(parts) >= 2:
        found.mounts.append((parts[0], parts[1]))


def _image(image: str, found: Running) -> None:
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    release = _TAG.match(tag)
    if release:
        found.release = release.group(1)
    else:
        found.note(f"The image {image} does not say which release it holds.")


def _gpus(value: str, found: Running) -> None:
    text = value.strip("\"'")
    devices = re.search(r"device=(.*)", text)
    if text.isdigit():
        found.gpus = int(text)
    elif devices:
        found.gpus = len([one for one in re.split(r",", devices.group(1).strip("\"'")) if one and "=" not in one])


def _gpus_of_environment(found: Running) -> None:
    visible = found.env.get("CUDA_VISIBLE_DEVICES", "")
    if re.match(r"[\w/-]+(,[\w/-]+)*\Z", visible):
        found.gpus = len(visible.split(","))


# ---- compose --------------------------------------------------------------------------------------------------------


def _compose(text: str, found: Running) -> bool:
    # Imported here: only the controller reads such a text, and hosts need no PyYAML.
    import yaml

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise AdoptProblem("The compose file is no YAML that can be read") from exc
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        raise AdoptProblem("The compose file has no mapping of services")
    servers = []
    for name, service in services.items():
        one = Running()
        if isinstance(service, dict) and _service(str(name), service, one):
            servers.append(one)
    if len(servers) != 1:
        raise AdoptProblem(f"The compose file starts {len(servers)} SGLang servers; give it with one")
    vars(found).update(vars(servers[0]))
    return True


def _service(name: str, service: t.Mapping[str, t.Any], found: Running) -> bool:
    words = [*_listed(service.get("entrypoint")), *_listed(service.get("command"))]
    if not _command([word.replace("$$", "$") for word in words], found):
        return False
    found.name = str(service.get("container_name") or name)
    if service.get("image"):
        _image(str(service["image"]), found)
    environment = service.get("environment") or {}
    if isinstance(environment, dict):
        environment = [key if value is None else f"{key}={_text(value)}" for key, value in environment.items()]
    for one in environment if isinstance(environment, list) else []:
        _variable(str(one).replace("$$", "$"), found)
    if service.get("env_file"):
        found.note(f"What env_file names was not read. {_VARIABLES}")
    for one in _items(service, "ports"):
        if isinstance(one, dict):
            found.ports.append((str(one.get("host_ip", "")), str(one.get("published")), str(one.get("target"))))
        else:
            _publish(str(one), found)
    for one in _items(service, "volumes"):
        if isinstance(one, dict):
            found.mounts.append((str(one.get("source")), str(one.get("target"))))
        else:
            _mount(str(one), found)
    told = [str(key) for key in service if key not in (*_COMPOSE_READ, *_COMPOSE_OF_NO_CONCERN)]
    told += [f"volume {source}:{target}" for source, target in found.mounts]
    if told:
        found.note(f"Settings of the service that are not carried over: {', '.join(told)}.")
    return True


def _items(service: t.Mapping[str, t.Any], key: str) -> list[t.Any]:
    value = service.get(key)
    return value if isinstance(value, list) else []


def _listed(value: t.Any) -> list[str]:
    """A command in either form: a list of words, or one text that is split as a shell would."""
    if isinstance(value, list):
        return [_text(one) for one in value]
    if not isinstance(value, str):
        return []
    try:
        return shlex.split(value.replace("\\\n", " "))
    except ValueError as exc:
        raise AdoptProblem(f"A command of the compose file cannot be split into words: {exc}") from exc


def _text(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- secrets --------------------------------------------------------------------------------------------------------


def names_secret(name: str) -> bool:
    """Whether a variable or a flag of this name holds a secret, as far as a name can say."""
    endings = ("TOKEN", "KEY", "KEYS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS")
    return any(part.endswith(endings) for part in re.split(r"[-_.]", name.upper()))
