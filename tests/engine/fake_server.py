# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for ``python -m sglang.launch_server`` that starts at once: one file, standard library only.

It takes any of SGLang's flags and goes through what a client sees of the real server: nobody listens while it loads,
/health is 503 while it warms up and takes a second per 200 afterwards, the average acceptance length is missing until
a decode log interval is over. Its answers have the keys and types of ``tests/fixtures/engine/``.

======================  =====================================================  =======
environment             meaning                                                default
======================  =====================================================  =======
FAKE_LOAD_SECONDS       seconds until the port is open                         1
FAKE_WARMUP_SECONDS     seconds of 503 after that                              1
FAKE_ACCEPT_LENGTH      tokens per verification, given --speculative-algorithm  2
FAKE_MODEL              the name that it serves its model under                as told
FAKE_TEXT               the only word of its texts                              a sentence
FAKE_CHAT_STATUS        status of chat completions with tools or a JSON schema  200
FAKE_SERVER_INFO        JSON of keys that /server_info says otherwise           {}
FAKE_EXIT_AFTER         seconds until it fails, counted from its start         never
FAKE_EXIT_CODE          exit status then; negative: the signal that ends it    1
======================  =====================================================  =======
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import os
import signal
import sys
import threading
import time
import typing as t
import uuid
from pathlib import Path

VERSION = "0.5.19"
HEALTH_SECONDS = 1.0
_WORDS = ("once", "upon", "a", "time", "there", "was", "no", "model", "here")


def script(python: str = "/usr/bin/python3") -> str:
    """This file as an executable for the place of an engine's ``bin/python``."""
    return f"#!{python}\n{Path(__file__).read_text()}"


class Engine:
    """What the server counts and how it was started."""

    def __init__(self, flags: argparse.Namespace, environment: t.Mapping[str, str]) -> None:
        self.flags = flags
        self.words = (environment["FAKE_TEXT"],) if "FAKE_TEXT" in environment else _WORDS
        self.chat_status = int(environment.get("FAKE_CHAT_STATUS", "200"))
        self.says = environment.get("FAKE_SERVER_INFO", "{}")
        self.accept_length = float(environment.get("FAKE_ACCEPT_LENGTH", "2"))
        self._name = environment.get("FAKE_MODEL")
        self.warm_at = time.monotonic() + float(environment.get("FAKE_WARMUP_SECONDS", "1"))
        self.requests = self.prompt_tokens = self.generated_tokens = self.verifications = 0
        self._lock = threading.Lock()

    @property
    def warm(self) -> bool:
        return time.monotonic() >= self.warm_at

    @property
    def name(self) -> str:
        return self._name or str(self.flags.served_model_name or self.flags.model_path)

    @property
    def measured(self) -> bool:
        """Whether a decode log interval with speculation is over."""
        return self.verifications >= self.flags.decode_log_interval

    def generate(self, prompt: str, tokens: int) -> tuple[str, dict[str, t.Any]]:
        """``(text, meta_info)`` of ``tokens`` words."""
        begin = time.monotonic()
        verifications = max(1, int(tokens / self.accept_length)) if self.flags.speculative_algorithm else 0
        meta: dict[str, t.Any] = {
            "id": uuid.uuid4().hex,
            "finish_reason": {"type": "length", "length": tokens},
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": tokens,
            "cached_tokens": 0,
        }
        with self._lock:
            self.requests += 1
            self.prompt_tokens += meta["prompt_tokens"]
            self.generated_tokens += tokens
            self.verifications += verifications
        if verifications:
            meta["spec_accept_length"] = tokens / verifications
            meta["spec_accept_rate"] = self._accept_rate()
            meta["spec_verify_ct"] = verifications
        text = "".join(f" {word}" for word in itertools.islice(itertools.cycle(self.words), tokens))
        return text, {**meta, "e2e_latency": time.monotonic() - begin}

    def model_info(self) -> dict[str, t.Any]:
        return {
            "model_path": self.flags.model_path,
            "served_model_name": self.name,
            "is_generation": True,
            "model_type": "deepseek_v3",
        }

    def server_info(self) -> dict[str, t.Any]:
        speculative = {key: value for key, value in vars(self.flags).items() if key.startswith("speculative_")}
        flags = {
            "model_path": self.flags.model_path,
            "served_model_name": self.name,
            "host": self.flags.host,
            "port": self.flags.port,
            "decode_log_interval": self.flags.decode_log_interval,
            **speculative,
            **json.loads(self.says),
        }
        measured = {"avg_spec_accept_length": self.accept_length} if self.measured else {}
        return {**flags, "status": "ready", "version": VERSION, "internal_states": [{**flags, **measured}]}

    def metrics(self) -> str:
        values = {
            "num_running_reqs": 0,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated_tokens,
            "num_requests_total": self.requests,
            "spec_accept_length": self.accept_length if self.measured else 0,
            "spec_accept_rate": self._accept_rate() if self.measured else 0,
            "spec_num_steps": self.flags.speculative_num_steps if self.measured else 0,
            "spec_num_draft_tokens": self.flags.speculative_num_draft_tokens if self.measured else 0,
            "spec_verify_calls_total": self.verifications,
        }
        lines = (f'sglang:{name}{{model_name="{self.name}"}} {float(value or 0)}\n' for name, value in values.items())
        return "".join(lines)

    def _accept_rate(self) -> float:
        return (self.accept_length - 1) / (self.flags.speculative_num_steps or 1)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request to the server."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        engine = self.server.engine
        path = self.path.partition("?")[0]
        if not self._may_ask(path):
            self._send_json({"error": "Unauthorized"}, 401)
        elif path in ("/health", "/health_generate"):
            self._health()
        elif path == "/v1/models":
            self._send_json({"object": "list", "data": [_model_card(engine.name)]})
        elif path in ("/model_info", "/get_model_info"):
            self._send_json(engine.model_info())
        elif path in ("/server_info", "/get_server_info"):
            self._send_json(engine.server_info())
        elif path == "/metrics" and engine.flags.enable_metrics:
            self._send(200, engine.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._send_json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        engine = self.server.engine
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not self._may_ask(self.path):
            self._send_json({"error": "Unauthorized"}, 401)
            return
        tokens = asked.get("max_completion_tokens") or asked.get("max_tokens") or 16
        if self.path == "/generate":
            tokens = asked.get("sampling_params", {}).get("max_new_tokens", 128)
            text, meta = engine.generate(asked["text"], tokens)
            output_ids = [place % len(engine.words) for place in range(tokens)]
            self._send_json({"text": text, "output_ids": output_ids, "meta_info": meta})
        elif self.path == "/v1/completions":
            text, meta = engine.generate(asked["prompt"], tokens)
            self._send_json(_openai_answer("text_completion", engine.name, {"text": text}, meta))
        elif engine.chat_status != 200 and {"tools", "response_format"} & set(asked):
            self._send_json({"object": "error", "message": "made to fail by FAKE_CHAT_STATUS"}, engine.chat_status)
        elif self.path == "/v1/chat/completions":
            text, meta = engine.generate(" ".join(str(message["content"]) for message in asked["messages"]), tokens)
            message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
            self._send_json(_openai_answer("chat.completion", engine.name, {"message": message}, meta))
        else:
            self._send_json({"detail": "Not Found"}, 404)

    def log_message(self, *arguments: t.Any) -> None:
        sys.stderr.write(f"INFO:     {self.address_string()} - {arguments[0] % arguments[1:]}\n")

    def _health(self) -> None:
        if self.server.engine.warm:
            time.sleep(HEALTH_SECONDS)
            self._send(200, b"", "text/plain")
        else:
            self._send(503, b"", "text/plain")

    def _may_ask(self, path: str) -> bool:
        """Health and metrics are for everybody, all else for those with the API key, if there is one."""
        key = self.server.engine.flags.api_key
        return not key or path.startswith(("/health", "/metrics")) or self.headers["Authorization"] == f"Bearer {key}"

    def _send_json(self, document: t.Any, status: int = 200) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    """The listening server."""

    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__((engine.flags.host, engine.flags.port), Handler)
        self.engine = engine


def _model_card(name: str) -> dict[str, t.Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": 2048,
    }


def _openai_answer(kind: str, model: str, choice: dict[str, t.Any], meta: dict[str, t.Any]) -> dict[str, t.Any]:
    usage = {
        "prompt_tokens": meta["prompt_tokens"],
        "completion_tokens": meta["completion_tokens"],
        "total_tokens": meta["prompt_tokens"] + meta["completion_tokens"],
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }
    return {
        "id": meta["id"],
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "finish_reason": "length", "logprobs": None, "matched_stop": None, **choice}],
        "usage": usage,
        "metadata": {"weight_version": "default"},
    }


def read_flags(arguments: list[str]) -> argparse.Namespace:
    """The flags that show in the answers; all others are let pass."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--api-key")
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--decode-log-interval", type=int, default=40)
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--speculative-draft-model-path", "--speculative-draft-model")
    for number in ("num-steps", "eagle-topk", "num-draft-tokens"):
        parser.add_argument(f"--speculative-{number}", type=int)
    return parser.parse_known_args(with_config(arguments))[0]


def with_config(arguments: list[str]) -> list[str]:
    """The file behind --config as words in front of the others. SGLang takes YAML; here it is JSON of texts."""
    if "--config" not in arguments:
        return arguments
    place = arguments.index("--config")
    config = json.loads(Path(arguments[place + 1]).read_text())
    words = [word for key, value in config.items() for word in (f"--{key}", value)]
    return [*words, *arguments[:place], *arguments[place + 2 :]]


def fail_later(seconds: float, code: int) -> None:
    """End this process after a while as a crash of the scheduler does: words on standard error, then the end."""

    def fail() -> None:
        sys.stderr.write(
            "Traceback (most recent call last):\n"
            '  File "scheduler.py", line 1, in run_scheduler_process\n'
            "    scheduler = Scheduler(server_args)\n"
            "RuntimeError: made to fail by FAKE_EXIT_AFTER\n"
        )
        sys.stderr.flush()
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)

    timer = threading.Timer(seconds, fail)
    timer.daemon = True
    timer.start()


def main() -> None:
    environment = os.environ
    if "FAKE_EXIT_AFTER" in environment:
        fail_later(float(environment["FAKE_EXIT_AFTER"]), int(environment.get("FAKE_EXIT_CODE", "1")))
    flags = read_flags(sys.argv[1:])
    time.sleep(float(environment.get("FAKE_LOAD_SECONDS", "1")))
    with Server(Engine(flags, environment)) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.02)


if __name__ == "__main__":
    main()
