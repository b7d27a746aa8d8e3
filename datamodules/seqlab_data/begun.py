"""Token files that are written block by block, and can be resumed after their process was killed."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from seqlab_data.splits import SPLITS

DONE = "done.json"
EVERY = 16
"""Number of blocks between two points from which writing can resume."""


class BegunFiles:
    """Partially written token files of the splits, and the number of blocks in them, in a separate folder.

    An exception deletes them; after Ctrl-C or a kill, writing resumes.

    Args:
        folder: folder of the files, possibly left by an earlier process.
        dtype: NumPy dtype of the ids.
        tokenizer: digest of the tokenizer that produces the ids; files of another tokenizer are not resumed.

    Attributes:
        blocks: number of blocks written.
        chars: number of characters of text in those blocks.
        tokens: number of tokens in each split.
    """

    def __init__(self, folder: Path, dtype: str, tokenizer: str) -> None:
        self._folder, self._dtype, self._tokenizer = folder, dtype, tokenizer
        self.blocks, self.chars, self.tokens = self._left()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        self._files = {split: self._open.enter_context(self._path(split).open("ab")) for split in SPLITS}
        for split, file in self._files.items():
            file.truncate(self._size(split))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()
        if isinstance(error, Exception):
            shutil.rmtree(self._folder, ignore_errors=True)

    def begin_anew(self) -> None:
        """Discards what an earlier process has written."""
        (self._folder / DONE).unlink(missing_ok=True)
        self.blocks, self.chars, self.tokens = 0, 0, dict.fromkeys(SPLITS, 0)
        for file in self._files.values():
            file.truncate(0)

    def add(self, split: str, ids: NDArray[Any], num_chars: int) -> None:
        """Appends the next block to this split's file."""
        ids.tofile(self._files[split])
        self.tokens[split] += len(ids)
        self.chars += num_chars
        self.blocks += 1
        if self.blocks % EVERY == 0:
            self._keep()

    def move(self, folder: Path) -> None:
        """Moves the files to a folder."""
        for split in SPLITS:
            os.replace(self._path(split), folder / f"{split}.bin")
        shutil.rmtree(self._folder)

    def _keep(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        new = self._folder / f"{DONE}.new"
        new.write_text(json.dumps([self._tokenizer, self.blocks, self.chars, self.tokens]))
        os.replace(new, self._folder / DONE)

    def _left(self) -> tuple[int, int, dict[str, int]]:
        """Numbers of blocks, characters, and tokens of each split that an earlier process has completed."""
        try:
            tokenizer, blocks, chars, self.tokens = json.loads((self._folder / DONE).read_text())
            whole = all(self._path(split).stat().st_size >= self._size(split) for split in SPLITS)
            if tokenizer == self._tokenizer and whole:
                return blocks, chars, self.tokens
        except (OSError, ValueError, RecursionError):
            pass
        return 0, 0, dict.fromkeys(SPLITS, 0)

    def _path(self, split: str) -> Path:
        return self._folder / f"{split}.bin"

    def _size(self, split: str) -> int:
        return self.tokens[split] * int(self._dtype[-1])
