"""The chat template of a checkpoint folder, a program in Jinja, as a `ChatFormat`, which is data."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from seqlab_data.tokenizers.chat import ANSWER, ROLES, START, ChatFormat, Message, Part
from seqlab_data.tokenizers.pretrained import PretrainedTokenizer

TRIED, LONGEST = 300, 12
"""Number of random chats in which the format must equal the template, and a length that they do not reach."""
CONTENTS = ("", "Hi", " two  words ", "a\nb\n", "\n\tx", "{{ x }}{% y %}", "<think>\na\n</think>\n\nb", "ü 😀")
SPACE = "\t \t"
MARK = re.compile(f"(?P<before>{SPACE})?<(?P<place>[0-9])>({SPACE})?")

Render = Callable[[list[Message]], str]


def read_chat_format(folder: Path, tokenizer: PretrainedTokenizer) -> ChatFormat | None:
    """Reads `chat_template.jinja`, or the template in `tokenizer_config.json`; None = the folder has neither.

    The template runs in Jinja's sandbox, as in transformers. Chats of up to four messages show what it writes between
    two roles; random longer ones show that nothing else matters, and that the ids are those of the whole text.

    Raises:
        ValueError: the template is damaged, or what it writes depends on more than the roles of two messages.
    """
    config = folder / "tokenizer_config.json"
    try:
        fields = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{config} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{config} does not hold a JSON object")
    alone = folder / "chat_template.jinja"
    source = alone.read_text(encoding="utf-8") if alone.is_file() else fields.get("chat_template")
    if isinstance(source, list):  # several templates with names
        named = {
            one["name"]: one["template"] for one in source if isinstance(one, dict) and {"name", "template"} <= {*one}
        }
        source = named.get("default")
    if source is None:
        return None
    render = _renderer(source, fields)
    between, stripped = _learn(render)
    joints: dict[str, dict[str, tuple[Part, ...]]] = {}
    for (role, follower), text in between.items():
        joints.setdefault(role, {})[follower] = tuple(_split(text, tokenizer.special_tokens))
    format_ = ChatFormat(joints, tuple(role for role in ROLES if role in stripped))
    _check(format_, render, tokenizer)
    return format_


def _renderer(source: Any, fields: dict[str, Any]) -> Render:
    """The text of a chat, up to the answer, as transformers' `apply_chat_template` writes it."""
    import jinja2
    import jinja2.sandbox

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    names = {name: value for name, value in fields.items() if name.endswith("_token")}
    tokens = {name: value.get("content") if isinstance(value, dict) else value for name, value in names.items()}
    try:
        template = environment.from_string(source)
    except (jinja2.TemplateError, TypeError) as error:
        raise ValueError(f"its chat template cannot be read: {error}") from error

    def render(messages: list[Message]) -> str:
        told = [message._asdict() for message in messages]
        try:
            return template.render(messages=told, tools=None, documents=None, add_generation_prompt=True, **tokens)
        except Exception as error:  # of the template's own making
            raise ValueError(f"its chat template refuses a chat: {error}") from error

    return render


def _learn(render: Render) -> tuple[dict[tuple[str, str], str], set[str]]:
    """The text between two roles, of each pair that some chat may have, and the roles whose messages are stripped."""
    between: dict[tuple[str, str], str] = {}
    stripped: set[str] = set()
    why = ""
    for length in range(1, 5):
        for roles in product(ROLES, repeat=length):
            try:
                text = render([Message(role, f"{SPACE}<{place}>{SPACE}") for place, role in enumerate(roles)])
            except ValueError as error:
                why = str(error)
                continue  # these roles may not follow each other
            found = [*MARK.finditer(text)]
            if [mark["place"] for mark in found] != [str(place) for place in range(length)]:
                continue  # a message is left out
            stripped |= {role for role, mark in zip(roles, found, strict=True) if not mark["before"]}
            ends = [0, *(mark.end() for mark in found)]
            starts = [*(mark.start() for mark in found), len(text)]
            for pair, start, end in zip(pairwise((START, *roles, ANSWER)), ends, starts, strict=True):
                if between.setdefault(pair, text[start:end]) != text[start:end]:
                    raise ValueError(f"its chat template does not always write the same between {' and '.join(pair)}")
    if not between:
        raise ValueError(why or "its chat template leaves messages out")
    return between, stripped


def _split(text: str, special: dict[str, int]) -> Iterator[Part]:
    """Splits a text at its special tokens, the longest first."""
    pattern = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
    for part in re.split(f"({pattern})", text) if special else [text]:
        if part:
            yield special.get(part, part)


def _check(format_: ChatFormat, render: Render, tokenizer: PretrainedTokenizer) -> None:
    """Compares random chats; raises ValueError at the first that differs."""
    draw = random.Random(0)
    special = tokenizer.special_tokens
    contents = [content for content in CONTENTS if not any(token in content for token in special)]
    for _ in range(TRIED):
        role, chat = START, [Message(START, "")]
        while role != ANSWER and len(chat) < LONGEST:
            role = draw.choice([*format_.joints[role]])
            chat.append(Message(role, draw.choice(contents)))
        if role != ANSWER:
            continue
        chat = chat[1:-1]
        if tokenizer.encode_with_special(render(chat)) != format_.encode(chat, tokenizer.encode):
            told = [message._asdict() for message in chat]
            raise ValueError(f"its chat template changes more than what is between messages, as in {told}")
