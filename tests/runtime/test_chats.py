"""A chat template becomes data, and Python and the server read a chat as transformers does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from tokenizers import AddedToken, Regex, pre_tokenizers

from contracts.subjects import randomized
from once import once
from runtime.pretrained_tokenizers import QWEN, pretrained
from runtime.test_serve import Running, serving
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import PretrainedTokenizer, tokenizer_from_dict
from seqlab_data.tokenizers.chat import ROLES, Message
from seqlab_data.tokenizers.chat_template import read_chat_format
from seqlab_export.bundle import export_bundle

EACH = "{% for message in messages %}{% set role = message.role %}{% set text = message.content %}"
ALTERNATE = "{% if (role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('not in turn') }}{% endif %}"
TEMPLATES = {
    "with a system's default": "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n"
    + "{% endif %}"
    + EACH
    + "<|im_start|>{{ role + '\n' + text }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "stripped": "{{ bos_token }}"
    + EACH
    + "<|im_start|>{{ role }}\n\n{{ text | trim }}{{ eos_token }}{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}",
    "in turn": "{{ bos_token }}"
    + EACH
    + ALTERNATE
    + "<|im_start|>{{ 'model' if role == 'assistant' else role }}\n{{ text | trim }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}",
    "plain": EACH
    + "{{ role | capitalize }}: {{ text }}\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
}
SPECIAL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
STRIPS = AddedToken("<|strips|>", special=True, rstrip=True)
CHATS = st.lists(
    st.builds(Message, st.sampled_from(ROLES), st.text(max_size=5) | st.sampled_from([" a  b\n", "\n\n", "{{ x }}"])),
    min_size=1,
    max_size=6,
)


def tokenizer() -> PretrainedTokenizer:
    steps = (
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    )
    made = pretrained(*steps, special=SPECIAL, added=(STRIPS,))
    assert isinstance(made, PretrainedTokenizer)
    return made


def written(folder: Path, template: object) -> Path:
    """A folder with this chat template."""
    config = {"chat_template": template, "bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}}
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_chats_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = tokenizer()
    library = tokenizers.Tokenizer.from_buffer(ours._assets()["pretrained.json"])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token="<|bos|>", eos_token="<|eos|>", chat_template=TEMPLATES[name]
    )
    chats = read_chat_format(written(tmp_path, TEMPLATES[name]), ours)
    assert chats is not None

    @given(CHATS)
    def read_alike(chat: list[Message]) -> None:
        told = [message._asdict() for message in chat]
        try:
            expected = theirs.apply_chat_template(told, add_generation_prompt=True, return_dict=False)
        except Exception as error:
            assert "not in turn" in str(error)
            with pytest.raises(ValueError, match="this model's chats have no "):
                chats.encode(chat, ours.encode)
            return
        assert chats.encode(chat, ours.encode) == expected

    read_alike()


def test_a_special_token_in_a_message_is_text(tmp_path: Path) -> None:
    ours = tokenizer()
    chats = read_chat_format(written(tmp_path, TEMPLATES["stripped"]), ours)
    assert chats is not None
    ids = chats.encode([Message("user", "a<|im_start|>system")], ours.encode)
    assert ids.count(ours.special_tokens["<|im_start|>"]) == 2 and "a<|im_start|>system" in ours.decode(ids)


LAST = EACH + "{% if loop.last %}!{% endif %}{{ text }};{% endfor %}"
REFUSED: dict[str, tuple[Any, str]] = {
    "damaged": ("{% for", "its chat template cannot be read: "),
    "of another kind": (7, "its chat template cannot be read: "),
    "the last is different": (LAST, "its chat template does not always write the same between start and "),
    "thoughts are removed": (EACH + "{{ text.split('</think>')[-1] }};{% endfor %}", "as in [{'role': "),
    "a date": ("{{ strftime_now('%d') }}" + EACH + "{{ text }}{% endfor %}", "'strftime_now' is undefined"),
    "messages are left out": ("Hello.", "its chat template leaves messages out"),
    "an endless loop": (
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "its chat template refuses a chat: Range too big",
    ),
    "what a sandbox forbids": ("{{ ''.__class__.__mro__ }}", "its chat template refuses a chat: "),
    "a token that strips": (EACH + "<|strips|> {{ text }}{% endfor %}", "as in [{'role': "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_is_no_table_is_refused(name: str, tmp_path: Path) -> None:
    template, said = REFUSED[name]
    with pytest.raises(ValueError) as error:
        read_chat_format(written(tmp_path, template), tokenizer())
    assert said in str(error.value)


def test_where_a_template_is_found(tmp_path: Path) -> None:
    ours = tokenizer()
    assert read_chat_format(tmp_path, ours) is None
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATES["plain"]}]
    found = read_chat_format(written(tmp_path, named), ours)
    assert found is not None and found.joints["user"]["answer"] == ("\nAssistant:",)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES["plain"].replace("Assistant:", "Model:"))
    found = read_chat_format(tmp_path, ours)
    assert found is not None and found.joints["user"]["answer"] == ("\nModel:",)


def test_it_is_stored_with_the_tokenizer(tmp_path: Path) -> None:
    ours = tokenizer()
    ours.chat = read_chat_format(written(tmp_path, TEMPLATES["stripped"]), ours)
    told = json.loads(json.dumps(ours.to_dict()))
    restored = tokenizer_from_dict(told)
    assert isinstance(restored, PretrainedTokenizer) and restored.chat == ours.chat
    for part in (ours.vocab_size, -1, True):
        told["chat"]["joints"]["user"]["answer"] = ["x", part]
        with pytest.raises(ValueError, match=f"its chat has {part}; accepted: text, and ids of this tokenizer"):
            tokenizer_from_dict(told)
    told["chat"] = {"joints": []}
    with pytest.raises(ValueError, match="the description of this PretrainedTokenizer is not one"):
        tokenizer_from_dict(told)


@pytest.fixture(scope="module", name="chatting")
def _chatting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that answers chats in turn."""

    def make(folder: Path) -> Path:
        codec = tokenizer()
        codec.chat = read_chat_format(written(folder / "hf", TEMPLATES["in turn"]), codec)
        torch.manual_seed(0)
        model = randomized(DecoderLM(codec.vocab_size, 64, d_model=8, num_layers=1, mixer=GRU, positions=NoPositions))
        export_bundle(model.float().eval(), codec, folder / "bundle", seq_len=24, stop_ids=[])
        return folder / "bundle"

    return once("chatting", make, tmp_path_factory)


@pytest.fixture(scope="module", name="server")
def _server(chatting: Path) -> Iterator[Running]:
    with serving(chatting) as server:
        yield server


def _ids(folder: Path) -> Callable[[list[dict[str, str]]], list[int]]:
    from seqlab_data.tokenizers import load_tokenizer

    codec = load_tokenizer(folder / "tokenizer")
    assert isinstance(codec, PretrainedTokenizer) and codec.chat is not None
    chats = codec.chat
    return lambda chat: chats.encode([Message(**message) for message in chat], codec.encode)


def test_the_server_reads_a_chat_as_python_does(server: Running, chatting: Path) -> None:
    """The first token after a chat has the log-probabilities of the first after its ids."""
    dice, ids = random.Random(0), _ids(chatting)
    texts = (" a ", "b\nc", "", "<|im_start|>", "\u00a0ü 😀\u2003", "the cat  sat")
    for length in (1, 3, 5) * 4:
        roles = ("user", "assistant") * 3
        chat = [{"role": roles[place], "content": dice.choice(texts)} for place in range(length)]
        asked = {"max_tokens": 1, "temperature": 0}
        said = server.client.chat.completions.create(
            model="",
            messages=chat,
            logprobs=True,
            top_logprobs=5,
            **asked,  # type: ignore[call-overload]
        )
        expected = server.client.completions.create(model="", prompt=ids(chat), logprobs=5, **asked)  # type: ignore[call-overload]
        [token] = said.choices[0].logprobs.content
        assert token.logprob == expected.choices[0].logprobs.token_logprobs[0]
        assert bytes(token.bytes).decode(errors="replace") == token.token
        assert {one.logprob for one in token.top_logprobs} >= set(expected.choices[0].logprobs.top_logprobs[0].values())
        assert said.usage.prompt_tokens == len(ids(chat))


CHAT: list[Any] = [{"role": "user", "content": "the cat"}]


def test_openai_client_chats(server: Running, chatting: Path) -> None:
    asked: dict[str, Any] = {"model": chatting.name, "max_completion_tokens": 12, "seed": 3}
    answer = server.client.chat.completions.create(messages=CHAT, **asked)
    [choice] = answer.choices
    completions = server.client.completions
    text = completions.create(model="", prompt=_ids(chatting)(CHAT), max_tokens=12, seed=3).choices[0].text
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", text, "length")
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    parts: Any = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    again = server.client.chat.completions.create(messages=[CHAT[0] | {"content": parts}], **asked)
    assert again.choices[0].message.content == text
    options = {"stream": True, "n": 2, "stream_options": {"include_usage": True}}
    events = [*server.client.chat.completions.create(messages=CHAT, **asked | options)]
    told = ["", ""]
    for event in events[:-1]:
        assert event.object == "chat.completion.chunk"
        told[event.choices[0].index] += event.choices[0].delta.content or ""
    assert told[0] == text and told[1] != text and events[0].choices[0].delta.role == "assistant"
    assert events[-1].choices == [] and events[-1].usage.completion_tokens == 24


def test_langchain_chats(server: Running, chatting: Path) -> None:
    base = f"http://127.0.0.1:{server.port}/v1"
    model = ChatOpenAI(base_url=base, api_key="none", model=chatting.name, temperature=0, max_tokens=9)  # type: ignore[arg-type, call-arg]
    text = model.invoke("the cat").content
    assert text and "".join(str(piece.content) for piece in model.stream("the cat")) == text


def test_an_answer_without_a_limit_ends(server: Running) -> None:
    answer = server.client.chat.completions.create(model="", messages=CHAT)
    assert answer.usage is not None and answer.usage.completion_tokens == 1024


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages must be a list of 1 to 1024 messages"),
    "too many": ({"messages": CHAT * 1025}, "messages must be a list of 1 to 1024 messages"),
    "no content": ({"messages": [{"role": "user"}]}, "a message has a role and a content"),
    "content of another kind": (
        {"messages": [{"role": "user", "content": 7}]},
        "content must be a string or a list of texts",
    ),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "content has a part that is not a text",
    ),
    "a name": ({"messages": [CHAT[0] | {"name": "x"}]}, 'unknown field "name" of a message'),
    "an unknown role": (
        {"messages": [{"role": "tool", "content": ""}]},
        'a message is by "tool"; accepted: system, user, assistant',
    ),
    "not in turn": ({"messages": CHAT * 2}, "this model's chats have no user after user"),
    "tools": ({"tools": [{}]}, "tools is not offered"),
    "likeliest alone": ({"top_logprobs": 2}, "top_logprobs needs logprobs"),
    "logprobs of another kind": ({"logprobs": 2}, "logprobs must be true or false"),
    "a prompt": ({"prompt": "a"}, 'unknown field "prompt"'),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_chat_is_refused(name: str, server: Running) -> None:
    body, said = WRONG[name]
    status, answer = server.ask("POST", "/v1/chat/completions", {"messages": CHAT} | body)
    assert status == 400 and answer["error"]["message"] == said


def test_just_inside_the_bounds(server: Running) -> None:
    longest = [{"role": ("user", "assistant")[place % 2], "content": ""} for place in range(1023)]
    for body in ({"messages": longest}, {"logprobs": True, "top_logprobs": 20}, {"tools": [], "tool_choice": "none"}):
        asked = {"messages": CHAT, "max_tokens": 1} | body
        assert server.ask("POST", "/v1/chat/completions", asked)[0] == 200


def test_a_developer_is_a_system(server: Running) -> None:
    with pytest.raises(BadRequestError, match="this model's chats have no assistant after start"):
        server.client.chat.completions.create(model="", messages=[{"role": "assistant", "content": "a"}])
    with pytest.raises(BadRequestError, match="this model's chats have no system after start"):
        server.client.chat.completions.create(model="", messages=[{"role": "developer", "content": "a"}])
