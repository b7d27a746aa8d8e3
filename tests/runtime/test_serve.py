"""`seqlab-run serve` answers the clients that people have, many at once, with the text that each would have alone."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import OpenAI as LangChain
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI

from export.toys import TOKENIZER
from runtime.conftest import Bundle
from runtime.load import Load, resident
from runtime.programs import ENVIRONMENT, Command, build, refusal, run

V = TOKENIZER.vocab_size


class Running:
    """A server, with a client."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str) -> None:
        self.process, self.port = process, port
        self.client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer, of JSON or plain text; a body that is bytes is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if "json" in answer.headers["Content-Type"] else text

    def counts(self) -> dict[str, float]:
        """Numbers of /metrics for the only model."""
        told = self.ask("GET", "/metrics")[1].splitlines()
        lines = (line.rsplit(" ", 1) for line in told if not line.startswith("# TYPE "))
        return {name.split("{")[0]: float(value) for name, value in lines}

    def until(self, name: str, value: float) -> None:
        """Waits until a count has this value."""
        end = time.monotonic() + 30
        while self.counts()[name] != value:
            assert time.monotonic() < end, self.counts()
            time.sleep(0.02)


@contextmanager
def serving(*arguments: str | Path, key: str = "", sanitizers: str = "") -> Iterator[Running]:
    """A server of these bundles, which is told to end."""
    command = [build("seqlab-run", sanitizers), "serve", *arguments, "--port", "0"]
    environment = ENVIRONMENT | {"SEQLAB_API_KEY": key}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert " at http://127.0.0.1:" in said, said
        try:
            yield Running(process, int(said.rsplit(":", 1)[1]), key or "none")
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module", name="server")
def _server(bundle: Bundle) -> Iterator[Running]:
    with serving(bundle("endless"), "--connections", "64") as server:
        yield server


def alone(folder: Path, prompt: str, *flags: str) -> str:
    """The text of `seqlab-run generate`."""
    done = run("generate", folder, "--prompt", prompt, *flags)
    assert done.returncode == 0
    return done.stdout.decode().removesuffix("\n")


def test_openai_client_gets_the_text_of_generate(server: Running, bundle: Bundle) -> None:
    """Whole and streamed, of texts and of ids, with the usage."""
    client, folder = server.client, bundle("endless")
    [model] = client.models.list().data
    assert client.models.retrieve(model.id) == model
    assert model.id == folder.name
    flags = ("--max-new-tokens", "24", "--temperature", "0.9", "--seed", "5")
    expected = alone(folder, "abc", *flags)
    asked: dict[str, Any] = {"model": model.id, "max_tokens": 24, "temperature": 0.9, "seed": 5}
    ids = TOKENIZER.encode("abc")
    for prompt in ("abc", ids, ["abc"], [ids]):
        answer = client.completions.create(prompt=prompt, **asked)
        assert answer.choices[0].text == expected and answer.usage is not None
        assert answer.usage.prompt_tokens == 3 and answer.usage.total_tokens == 3 + answer.usage.completion_tokens
        assert answer.usage.completion_tokens == 24 and answer.choices[0].finish_reason == "length"
    events = [*client.completions.create(prompt="abc", stream=True, stream_options={"include_usage": True}, **asked)]
    assert "".join(event.choices[0].text for event in events[:-1]) == expected and len(events) > 5
    assert events[-2].choices[0].finish_reason and events[-1].usage == answer.usage
    drawn = client.completions.create(prompt="abc", **asked | {"seed": None}).model_extra
    assert drawn is not None
    again = client.completions.create(prompt="abc", **asked | {"seed": drawn["seed"]})
    assert again.model_extra == drawn, "a drawn seed is told, so that a text can be had again"


def test_several_texts_of_several_prompts(server: Running, bundle: Bundle) -> None:
    asked: dict[str, Any] = {"model": "", "max_tokens": 9, "seed": 2, "n": 3}
    before = server.counts()["seqlab_steps_total"]
    answer = server.client.completions.create(prompt=["ab", "cd"], **asked)
    assert [choice.index for choice in answer.choices] == [*range(6)]
    assert len({choice.text for choice in answer.choices}) > 3, "each choice draws its own numbers"
    assert server.counts()["seqlab_steps_total"] - before < 3 * 9, "choices share steps"
    for place, prompt in ((0, "ab"), (3, "cd")):
        expected = alone(bundle("endless"), prompt, "--max-new-tokens", "9", "--seed", "2")
        assert answer.choices[place].text == expected


def test_stop_strings_echo_and_log_probabilities(server: Running, bundle: Bundle) -> None:
    """A stop string that begins where another token ends is found, and nothing of it is shown."""
    greedy: dict[str, Any] = {"model": "", "prompt": "ab", "max_tokens": 30, "temperature": 0}
    whole = server.client.completions.create(**greedy).choices[0].text
    assert whole == alone(bundle("endless"), "ab", "--max-new-tokens", "30", "--temperature", "0") and len(whole) > 6
    for stop in (whole[3:5], whole[2:6], [whole[5], "nothing"], whole[0]):
        first = min(whole.find(one) for one in ([stop] if isinstance(stop, str) else stop) if one in whole)
        answer = server.client.completions.create(**greedy, stop=stop).choices[0]
        assert (answer.text, answer.finish_reason) == (whole[:first], "stop")
        events = server.client.completions.create(**greedy, stop=stop, stream=True)
        assert "".join(event.choices[0].text for event in events) == whole[:first]
    # What begins as a stop string and is none is shown in the end.
    assert server.client.completions.create(**greedy, stop=whole[-1] + "no").choices[0].text == whole

    assert server.client.completions.create(**greedy, echo=True).choices[0].text == "ab" + whole
    known = server.client.completions.create(**greedy, logprobs=2).choices[0].logprobs
    assert known is not None
    assert "".join(known.tokens or []) == whole and known.text_offset == [*range(len(whole))]
    for token, own, likeliest in zip(
        known.tokens or [], known.token_logprobs or [], known.top_logprobs or [], strict=True
    ):
        assert own == max(likeliest.values()) == likeliest[token] <= 0 and len(likeliest) == 2


def test_a_text_ends_with_the_tokens_of_its_bundle(bundle: Bundle) -> None:
    """The stop token itself is not shown."""
    asked: dict[str, Any] = {"model": "", "prompt": "abc", "max_tokens": 200, "seed": 5}
    with serving(bundle("gru")) as server:
        answer = server.client.completions.create(**asked)
        [choice], usage = answer.choices, answer.usage
        assert choice.finish_reason == "stop" and usage is not None and usage.completion_tokens < 200
        assert choice.text == alone(bundle("gru"), "abc", "--max-new-tokens", "200", "--seed", "5")


def test_langchain(server: Running, bundle: Bundle) -> None:
    model = LangChain(
        base_url=f"http://127.0.0.1:{server.port}/v1",
        api_key="none",  # type: ignore[arg-type]
        model=bundle("endless").name,
        temperature=0,
        max_tokens=12,
    )
    expected = alone(bundle("endless"), "abc", "--max-new-tokens", "12", "--temperature", "0")
    assert model.invoke("abc") == expected == "".join(model.stream("abc"))


def test_many_clients_have_the_texts_that_they_would_have_alone(server: Running, bundle: Bundle) -> None:
    """While others hang up."""
    dice = random.Random(0)
    asked = [{"prompt": "".join(dice.choices("abcdef ", k=dice.randint(1, 9))), "seed": seed} for seed in range(24)]
    common: dict[str, Any] = {"model": "", "max_tokens": 40, "temperature": 1.0}
    expected = [server.client.completions.create(**common | one).choices[0].text for one in asked]

    def hang_up(number: int) -> None:
        stream = server.client.completions.create(**common | {"prompt": "a", "max_tokens": 20_000}, stream=True)
        for _ in range(number):
            next(stream)
        stream.close()

    with ThreadPoolExecutor(32) as pool:
        gone = [pool.submit(hang_up, number) for number in range(1, 9)]
        found = [*pool.map(lambda one: server.client.completions.create(**common | one).choices[0].text, asked)]
        assert [one.result() for one in gone] == [None] * 8
    assert found == expected
    server.until("seqlab_requests_running", 0)
    counts = server.counts()
    assert counts["seqlab_requests_cancelled_total"] >= 8 and counts["seqlab_state_bytes"] == 0


WRONG: dict[str, tuple[Any, str | None, str]] = {
    "deep JSON": (b'{"prompt": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", None, "the body must be a JSON object"),
    "no JSON": (b"{", None, "the body must be a JSON object"),
    "no prompt": ({}, "prompt", "prompt is missing"),
    "a prompt of numbers": (
        {"prompt": [1.5]},
        "prompt",
        "prompt must be a string, a list of ids, or a list of either",
    ),
    "an id too large": ({"prompt": [V]}, None, f"token {V} is outside the vocabulary 0..{V - 1}"),
    "no token": ({"prompt": "a", "max_tokens": 0}, "max_tokens", "must be a whole number from 1 to"),
    "half a token": ({"prompt": "a", "max_tokens": 1.5}, "max_tokens", "got 1.5"),
    "a seed below 0": ({"prompt": "a", "seed": -1}, "seed", "got -1"),
    "too cold": ({"prompt": "a", "temperature": -1}, None, "temperature must be at least 0 and finite, got -1"),
    "text for a number": ({"prompt": "a", "top_p": "1"}, "top_p", "top_p must be a number"),
    "an unknown field": ({"prompt": "a", "temprature": 1}, "temprature", 'unknown field "temprature"'),
    "echo with logprobs": ({"prompt": "a", "echo": True, "logprobs": 1}, "logprobs", "not offered with echo"),
    "a penalty": ({"prompt": "a", "presence_penalty": 1}, "presence_penalty", "presence_penalty is not offered"),
    "an empty stop": ({"prompt": "a", "stop": ""}, "stop", "a stop string has 1 to 256 bytes"),
    "five stops": ({"prompt": "a", "stop": [*"abcde"]}, "stop", "stop has 5 strings, at most 4 are accepted"),
    "an n-gram of 65": ({"prompt": "a", "no_repeat_ngram": 65}, "no_repeat_ngram", "from 1 to 64, got 65"),
    "129 texts": (
        {"prompt": ["a"] * 43, "n": 3},
        "n",
        "there are 129 texts to write, at most 128 are accepted",
    ),
    "65 choices": ({"prompt": "a", "n": 65}, "n", "n must be a whole number from 1 to 64, got 65"),
    "65 prompts": ({"prompt": ["a"] * 65}, "prompt", "there are 65 prompts, at most 64 are accepted"),
    "21 log-probabilities": ({"prompt": "a", "logprobs": 21}, "logprobs", "from 0 to 20"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_in_one_sentence(name: str, server: Running) -> None:
    body, param, said = WRONG[name]
    status, answer = server.ask("POST", "/v1/completions", body)
    error = answer["error"]
    assert status == 400 and error["param"] == param and error["type"] == "invalid_request_error"
    assert said in error["message"] and "\n" not in error["message"]


def test_just_inside_the_bounds(server: Running) -> None:
    rows = {"prompt": ["a"] * 64, "n": 2}
    for body in ({"n": 64}, rows, {"no_repeat_ngram": 64}, {"stop": [*"abcd"]}, {"stop": "a" * 256}, {"logprobs": 20}):
        status, answer = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1} | body)
        assert status == 200, answer


def test_other_paths_and_models(server: Running, bundle: Bundle) -> None:
    name = bundle("endless").name
    with pytest.raises(NotFoundError, match=f'there is no model "other"; here are {name}'):
        server.client.completions.create(model="other", prompt="a")
    with pytest.raises(BadRequestError, match=f"model {name} has no chat template; ask /v1/completions"):
        server.client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}])
    assert server.ask("POST", "/v1/chat/completions", {"model": 7})[0] == 400
    assert server.ask("POST", "/translate", {"texts": "a"})[1]["error"]["message"] == (
        f"model {name} does not answer /translate"
    )
    status, answer = server.ask("GET", "/v1/complete")
    assert status == 404 and answer["error"]["message"] == "there is no GET /v1/complete"
    assert server.ask("GET", "/health") == (200, "ok\n") and server.ask("GET", "/ready") == (200, "ready\n")
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what `curl -d` says
    for headers in ({}, form):
        status, answer = server.ask("POST", "/v1/completions", b" " * (2**20 + 1), **headers)
        assert status == 413 and answer["error"]["message"] == "a body has at most 1048576 bytes"
        status, answer = server.ask("POST", "/v1/completions", b" " * 2**20, **headers)
        assert status == 400 and answer["error"]["message"] == "the body must be a JSON object"


def test_bytes_that_are_not_http_do_no_harm(server: Running) -> None:
    dice = random.Random(1)
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(
                dice.choice([b"", b"POST /v1/completions HTTP/1.1\r\n"]) + dice.randbytes(60) + b"\r\n\r\n"
            )
    assert server.ask("GET", "/health")[0] == 200


def test_metrics_count(server: Running) -> None:
    server.client.completions.create(model="", prompt="abc", max_tokens=4, temperature=0, seed=0)
    text = server.ask("GET", "/metrics")[1]
    assert 'seqlab_time_to_first_token_seconds_bucket{model="' in text and 'le="+Inf"}' in text
    assert 'seqlab_http_responses_total{status="200"} ' in text
    counts = server.counts()
    assert counts["seqlab_time_to_first_token_seconds_count"] <= counts["seqlab_new_tokens_total"]


def test_other_kinds_of_bundles(bundle: Bundle) -> None:
    """Answer as `seqlab-run translate` and `classify` do."""
    translator, classifier, tagger = bundle("translator"), bundle("classifier"), bundle("tagger")
    folders = (translator, classifier, tagger)
    names = [folder.parent.name for folder in folders]
    assert len({*names}) == 3
    links = [folder.parent / name for folder, name in zip(folders, names, strict=True)]
    for link, folder in zip(links, folders, strict=True):
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
    with serving(*links) as server:
        assert [model.id for model in server.client.models.list().data] == names
        texts = ["uvw xyz", "z"]
        status, answer = server.ask("POST", "/translate", {"model": names[0], "texts": texts, "beams": 2})
        said = run("translate", translator, "--beams", "2", text="\n".join(texts)).stdout.decode().splitlines()
        assert status == 200 and [one["text"] for one in answer["translations"]] == said
        for number, beams, code in ((64, 2, 200), (43, 3, 400)):
            asked = {"model": names[0], "texts": ["z"] * number, "beams": beams}
            assert server.ask("POST", "/translate", asked)[0] == code
        for size in (2**15, 2**15 + 1):
            _, answer = server.ask("POST", "/classify", {"model": names[1], "texts": "a" * size})
            assert ("a text has at most 32768 bytes" in str(answer)) == (size > 2**15)
        _, answer = server.ask("POST", "/classify", {"model": names[1], "texts": ["abc", "f"]})
        expected = run("classify", classifier, "--json", "abc", "f").stdout.decode().splitlines()
        assert answer["classes"] == [*map(json.loads, expected)]
        _, answer = server.ask("POST", "/tag", {"model": names[2], "texts": "the cat sat"})
        assert answer["tags"] == [json.loads(run("classify", tagger, "--json", "the cat sat").stdout)]
        message = server.ask("POST", "/tag", {"model": names[1], "texts": "a"})[1]["error"]["message"]
        assert message == f"model {names[1]} answers /classify"
        message = server.ask("POST", "/v1/completions", {"prompt": "a"})[1]["error"]["message"]
        assert message == f"model is missing; here are {', '.join(names)}"
        message = server.ask("POST", "/v1/completions", {"model": names[0], "prompt": "a"})[1]["error"]["message"]
        assert message == f"model {names[0]} continues no text"


def test_a_key_is_asked_for(bundle: Bundle) -> None:
    with serving(bundle("endless"), key="secret") as server:
        assert server.client.completions.create(model="", prompt="a", max_tokens=1).choices
        for headers in ({}, {"Authorization": "Bearer wrong!"}, {"Authorization": "Bearer secret2"}):
            status, answer = server.ask("GET", "/v1/models", **headers)
            assert status == 401 and answer["error"]["code"] == "invalid_api_key"
        assert server.ask("GET", "/metrics")[0] == 200, "Prometheus has no key"
        assert server.ask("GET", "/health")[0] == server.ask("GET", "/ready")[0] == 200


def test_a_log_has_one_line_for_each_answer(bundle: Bundle) -> None:
    """A path cannot forge another."""
    with serving(bundle("endless"), "--log") as server:
        assert server.process.stderr is not None
        for path, status in (("/health", 200), ("/none%0a127.0.0.1%20GET%20/health%20200", 404)):
            assert server.ask("GET", path)[0] == status
            assert server.process.stderr.readline() == f"127.0.0.1 GET {path} {status}\n"


def test_a_server_that_is_told_to_end_answers_what_it_has_begun(bundle: Bundle) -> None:
    long: dict[str, Any] = {"model": "", "prompt": "a", "max_tokens": 4000, "temperature": 1, "seed": 1}
    with serving(bundle("endless")) as server:
        stream = server.client.completions.create(**long, stream=True)
        texts = [next(stream).choices[0].text]
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while server.ask("GET", "/ready")[0] != 503:
            assert time.monotonic() < deadline
        with pytest.raises(APIStatusError, match="the server stops") as refused:
            server.client.completions.create(**long)
        assert refused.value.status_code == 503 and refused.value.response.headers["Retry-After"] == "1"
        events = [*stream]
        assert events[-1].choices[0].finish_reason and len(texts) + len(events) > 100


def test_a_newer_bundle_takes_the_place_without_losing_a_request(bundle: Bundle, tmp_path: Path) -> None:
    """A link that names another bundle, and SIGHUP. A bundle that cannot be opened changes nothing."""
    link = tmp_path / "champion"
    link.symlink_to(bundle("endless"))
    greedy: dict[str, Any] = {"model": "champion", "prompt": "abc", "max_tokens": 20, "temperature": 0}
    with serving(link) as server:
        assert server.process.stderr is not None
        stream = server.client.completions.create(**greedy | {"max_tokens": 4000}, stream=True)
        next(stream)
        for folder, said in ((bundle("endless attention"), "opened"), (tmp_path, "kept")):
            link.unlink()
            link.symlink_to(folder)
            server.process.send_signal(signal.SIGHUP)
            line = server.process.stderr.readline()
            assert line.startswith(f"seqlab-run: {said} the bundles"), line
            text = server.client.completions.create(**greedy).choices[0].text
            assert text == alone(bundle("endless attention"), "abc", "--max-new-tokens", "20", "--temperature", "0")
        assert [*stream][-1].choices[0].finish_reason


def test_a_client_that_does_not_read_is_cut_off(bundle: Bundle) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 10**6, "stream": True, "logprobs": 20}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(bundle("endless")) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head + body)
        server.until("seqlab_requests_cancelled_total", 1)


def read_until_cut(stream: Any) -> None:
    with suppress(Exception):
        for _ in stream:
            pass


def test_another_signal_ends_it_at_once(bundle: Bundle) -> None:
    command: Command = [build("seqlab-run"), "serve", bundle("endless"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        server = Running(process, int(process.stderr.readline().rsplit(":", 1)[1]), "none")
        stream = server.client.completions.create(model="", prompt="a", max_tokens=10**6, stream=True)
        next(stream)
        # Read on, or the server would cut it off and have nothing to wait for.
        reader = threading.Thread(target=read_until_cut, args=(stream,), daemon=True)
        reader.start()
        process.send_signal(signal.SIGINT)
        while server.ask("GET", "/ready")[0] != 503:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        reader.join(10)


def test_a_port_has_one_server(server: Running, bundle: Bundle) -> None:
    said = refusal("serve", bundle("endless"), "--port", str(server.port))
    assert said == f"cannot listen at '127.0.0.1', port {server.port}; is it in use?"


def test_cached_tokens_are_counted_once(bundle: Bundle) -> None:
    with serving(bundle("endless")) as server:
        asked: dict[str, Any] = {"model": "", "prompt": "abc" * 100, "max_tokens": 3, "temperature": 0}
        text = server.client.completions.create(**asked).choices[0].text
        usages = [server.client.completions.create(**asked | more).usage for more in ({"n": 4}, {"stop": text[0]})]
        for usage in usages:
            assert usage is not None and usage.prompt_tokens == 300 and usage.prompt_tokens_details is not None
            assert usage.prompt_tokens_details.cached_tokens == 256


def test_too_much_memory_is_refused(bundle: Bundle) -> None:
    with serving(bundle("endless attention"), "--memory", "64K") as server:
        status, answer = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 10**5})
        assert status == 413 and answer["error"]["code"] == "too_large"
        assert answer["error"]["message"].startswith("the state of a text of 100000 tokens takes ")
        assert server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 10})[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["", "address,undefined", "thread"])
def test_a_load_is_borne(sanitizers: str, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute. A server that a sanitizer finds fault with does not end with 0. The sanitizer of threads does not
    see what onnxruntime does, which is built without it."""
    (tmp_path / "suppressed").write_text("race:libonnxruntime\n")
    monkeypatch.setitem(ENVIRONMENT, "TSAN_OPTIONS", f"suppressions={tmp_path / 'suppressed'}")
    with serving(bundle("endless"), sanitizers=sanitizers) as server:
        load = Load("127.0.0.1", server.port)
        load.run(clients=64, seconds=10)
        before = resident(server.process.pid)
        load.run(clients=64, seconds=50)
        assert load.lost == [] and load.answered > 500 and load.cancelled > 100 and load.refused > 50
        assert sanitizers or resident(server.process.pid) < 1.2 * before
        server.until("seqlab_requests_running", 0)


@pytest.mark.slow
def test_the_command_of_python_is_the_same_server(bundle: Bundle, tmp_path: Path) -> None:
    """It serves a run too, which it exports first, and passes signals on."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 60, encoding="utf-8")
    tiny = ["--data.path=text.txt", "--data.seq_len=8", "--model.model.d_model=8", "--model.model.num_layers=1"]
    seqlab: Command = [sys.executable, "-m", "seqlab.cli"]
    environment = ENVIRONMENT | {"SEQLAB_RUN": str(build("seqlab-run"))}
    fit = [*seqlab, "fit", "--config=lm/gru", *tiny, "--trainer.max_steps=2", "--run_name=first"]
    subprocess.run(fit, cwd=tmp_path, env=environment, check=True, capture_output=True)
    command = [*seqlab, "serve", bundle("endless"), "first", "--port=0", "--threads=1", "--connections=8", "--log"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if " at http://127.0.0.1:" in line)
            server = Running(process, int(said.rsplit(":", 1)[1]), "none")
            assert [model.id for model in server.client.models.list().data] == [bundle("endless").name, "first"]
            assert process.stderr.readline() == "127.0.0.1 GET /v1/models 200\n"
            asked: dict[str, Any] = {"prompt": "abc", "max_tokens": 9, "temperature": 0}
            text = server.client.completions.create(model=bundle("endless").name, **asked).choices[0].text
            assert text == alone(bundle("endless"), "abc", "--max-new-tokens", "9", "--temperature", "0")
            assert server.client.completions.create(model="first", **asked | {"prompt": "the"}).choices[0].text
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


REFUSED: dict[str, tuple[Callable[[Path], list[str | Path]], str]] = {
    "no bundle": (lambda folder: [folder.parent], "is not a bundle: it has no manifest.json"),
    "the same twice": (lambda folder: [folder, folder], "two bundles are named "),
    "no port": (lambda folder: [folder, "--port", "65536"], "--port: Value 65536 not in range 0 to 65535"),
    "no connection": (lambda folder: [folder, "--connections", "0"], "--connections: Value 0 not in range 1 to 4096"),
    "no host": (lambda folder: [folder, "--host", "300.0.0.1"], "cannot listen at '300.0.0.1', port 8000; is it"),
    "an empty host": (lambda folder: [folder, "--host", ""], "cannot listen at '', port 8000; is it in use?"),
    "no memory": (lambda folder: [folder, "--memory", "0"], "memory must be at least 1, got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_cannot_begin_says_why(name: str, bundle: Bundle) -> None:
    arguments, said = REFUSED[name]
    assert said in refusal("serve", *arguments(bundle("endless")))
