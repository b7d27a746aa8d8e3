"""Operations, and who may know what they become elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import seqlab
from seqlab.nn.operation import lowered, operation, plain

BLOCKS = ("attention", "decoding", "models", "nn", "positions", "recurrence", "tasks", "mixer.py", "batch.py")


class Doubled:
    @operation
    def of(self, x: int) -> int:
        """Twice x."""
        return 2 * x


def test_an_operation_is_computed_by_its_lowering_while_that_is_open() -> None:
    doubled = Doubled()
    with lowered({Doubled.of: lambda self, x: plain(Doubled.of)(self, x) + 1}):
        assert doubled.of(3) == 7
        with lowered({}):
            assert doubled.of(3) == 6
        assert doubled.of(3) == 7
    assert doubled.of(3) == 6
    with pytest.raises(KeyError), lowered({Doubled.of: {}.__getitem__}):
        raise KeyError
    assert doubled.of(3) == 6
    assert Doubled.of.__doc__ == "Twice x."


def test_no_block_knows_of_another_runtime() -> None:
    platform = Path(seqlab.__file__).parent
    files = [file for room in BLOCKS for file in (platform / room).rglob("*.py")]
    files += [platform / room for room in BLOCKS if room.endswith(".py")]
    assert len(files) > 100
    assert [str(file) for file in files if re.search(r"onnx|seqlab_export", file.read_text(), re.IGNORECASE)] == []
