"""The tokens between the messages of a chat, as data: nothing of a template is run when a text is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

START, ANSWER = "start", "answer"
"""Stand-ins for roles: before the first message, and after the last, where the model's answer begins."""
ROLES = ("system", "user", "assistant")

Part = str | int
"""Plain text, or the id of a special token."""


class Message(NamedTuple):
    """A message of a chat, by one of `ROLES`."""

    role: str
    content: str


class ChatFormat(NamedTuple):
    """The text between two messages, which depends on their roles alone.

    Attributes:
        joints: parts between a role (or `START`) and the next one (or `ANSWER`). A pair that is absent may not follow.
        stripped: roles whose messages lose the whitespace around them.
    """

    joints: Mapping[str, Mapping[str, tuple[Part, ...]]]
    stripped: tuple[str, ...]

    def parts(self, messages: Iterable[Message]) -> list[Part]:
        """The parts of a chat, up to where the model's answer begins.

        Raises:
            ValueError: a role is unknown, or may not follow the one before it.
        """
        chat = [Message(START, ""), *messages, Message(ANSWER, "")]
        parts: list[Part] = []
        for before, message in pairwise(chat):
            if message.role not in (*ROLES, ANSWER):
                raise ValueError(f"a message is by {message.role!r}; accepted: {', '.join(ROLES)}")
            if message.role not in self.joints.get(before.role, {}):
                raise ValueError(f"this model's chats have no {message.role} after {before.role}")
            content = message.content.strip() if message.role in self.stripped else message.content
            parts += [*self.joints[before.role][message.role], content]
        return parts

    def encode(self, messages: Iterable[Message], encode: Callable[[str], list[int]]) -> list[int]:
        """The ids of a chat. A special token in a message is plain text.

        Raises:
            ValueError: as in `parts` and `encode`.
        """
        ids: list[int] = []
        text = ""
        for part in self.parts(messages):
            if isinstance(part, str):
                text += part
                continue
            ids += [*(encode(text) if text else ()), part]
            text = ""
        return [*ids, *(encode(text) if text else ())]

    def to_dict(self) -> dict[str, Any]:
        return {"joints": self.joints, "stripped": self.stripped}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], vocab_size: int) -> Self:
        """Raises ValueError, KeyError, TypeError or AttributeError if this describes no format of a vocabulary."""
        joints = {
            role: {follower: tuple(parts) for follower, parts in followers.items()}
            for role, followers in described["joints"].items()
        }
        parts = [part for followers in joints.values() for joint in followers.values() for part in joint]
        for part in parts:
            if type(part) is not str and (type(part) is not int or not 0 <= part < vocab_size):
                raise ValueError(f"its chat has {part!r}; accepted: text, and ids of this tokenizer")
        return cls(joints, tuple(described["stripped"]))
