"""Runs and bundles as models of EleutherAI's lm-evaluation-harness, which knows them as `seqlab` once this module is
imported. Run as a program it is the harness's own command line:

    python -m seqlab_export.harness --model seqlab --model_args path=RUN_OR_BUNDLE --tasks NAME,...

B batch, T tokens, K positions scored, V vocabulary.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from seqlab.decoding.generate import generate, padded_right
from seqlab.decoding.text_model import Generator
from seqlab_export.runner.bundle_text_model import open_text_model as open_bundle
from seqlab_export.runner.sessions import ProviderName

Window = tuple[tuple[str, str] | None, list[int], list[int]]
"""A text and its continuation, if a request has them; the ids of the context and of the continuation to score."""


class StopFoundError(Exception):
    """Ends a generation whose text contains a stop string."""


@register_model("seqlab")
class HarnessModel(TemplateLM):  # type: ignore[misc]
    """A language model, from a run or a bundle, for lm-evaluation-harness (Gao et al. 2024).

    Log-probabilities are computed in float64 from the logits. An empty context is the token that starts a document, or
    else the one that ends it. Text beyond `max_length` is cut off at the left of a context; perplexities read it in the
    harness's rolling windows, which score each token once.

    Args:
        path: run or checkpoint, as in `load_run`, or folder of a bundle.
        batch_size: number of texts whose continuations are scored at once. Text is generated one prompt at a time.
        max_length: maximum number of tokens that are read at once; None = the limit of the model.
        provider: device of onnxruntime for a bundle: "cpu" or "cuda". A run is computed on the CPU.
        trust: modules that a run's config may import, separated by spaces.
        device: the harness's own option, which is not used: its default is "cuda:0" on any machine.

    Raises:
        ValueError: an argument is invalid, the model cannot be opened, is not a language model, or reads the beginning
            of a text in both directions.
    """

    def __init__(
        self,
        path: str,
        batch_size: int | str = 1,
        max_length: int | None = None,
        provider: ProviderName = "cpu",
        trust: str = "",
        device: str | None = None,
    ) -> None:
        super().__init__()
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size}")
        model = _open(str(path), provider, trust.split())
        if model.verb != Generator.verb:
            raise ValueError(f"{path} is a model for `seqlab {model.verb}`; the harness evaluates language models")
        self.decoder = model.decoder
        stated = getattr(self.decoder, "manifest", None) or self.decoder.model
        if stated.first_call > 1:
            raise ValueError(
                f"{path} reads the first {stated.first_call} tokens of a text in both directions; the harness "
                "evaluates causal language models"
            )
        limit = self.decoder.max_seq_len
        if max_length is not None and not 1 <= max_length <= (limit or max_length):
            raise ValueError(f"max_length must be from 1 to {limit or 'any length'}, got {max_length}")
        self.model: Generator = model
        self.batch_size = int(batch_size)
        self.max_length: int | None = max_length or limit

    @property
    def eot_token_id(self) -> int:
        return self.model.codec.tokenizer.eos_id

    @property
    def prefix_token_id(self) -> int:
        """Token before a text without context; raises ValueError if the tokenizer has neither bos nor eos."""
        bos_id: int = self.model.codec.tokenizer.bos_id
        found = self.eot_token_id if bos_id < 0 else bos_id
        if found < 0:
            raise ValueError(f"{self.model.name} has no token that starts or ends a text; every text needs a context")
        return found

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        return self.model.codec.tokenizer.encode(string)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        texts = [self.tok_encode(request.args[0]) for request in requests]
        windows = [
            [
                (None, *make_disjoint_window(window))
                for window in get_rolling_token_windows(
                    tokens, self.prefix_token_id, self.max_length or max(len(tokens), 1), context_len=1
                )
            ]
            for tokens in texts
        ]
        found = iter(self._loglikelihood_tokens([window for of_text in windows for window in of_text]))
        return [sum(next(found)[0] for _ in of_text) for of_text in windows]

    def _loglikelihood_tokens(self, requests: Sequence[Window], **options: Any) -> list[tuple[float, bool]]:
        """Log-probability of each continuation in nats, and whether greedy decoding generates it.

        Raises:
            ValueError: a continuation has no token, or more than `max_length`.
        """
        found: dict[int, tuple[float, bool]] = {}
        longest_first = sorted(range(len(requests)), key=lambda number: -sum(map(len, requests[number][1:])))
        for start in range(0, len(requests), self.batch_size):
            some = longest_first[start : start + self.batch_size]
            found |= zip(some, self._scores([requests[number] for number in some]), strict=True)
        return [found[number] for number in range(len(requests))]

    def _scores(self, windows: Sequence[Window]) -> list[tuple[float, bool]]:
        texts = []
        for said, context, continuation in windows:
            if not 1 <= len(continuation) <= (self.max_length or len(continuation)):
                raise ValueError(
                    f"the continuation {said and said[1]!r} has {len(continuation)} tokens after its context; "
                    f"accepted: from 1 to {self.max_length or 'any number'}"
                )
            text = [*(context or [self.prefix_token_id]), *continuation]
            texts.append(text[-self.max_length - 1 if self.max_length else 0 :])
        tokens, pad_mask = padded_right([text[:-1] for text in texts])  # (B, T)
        lengths = [len(continuation) for _, _, continuation in windows]
        first = min(len(text) - 1 - length for text, length in zip(texts, lengths, strict=True))
        logits = self.decoder.logits(tokens, pad_mask, np.arange(first, tokens.shape[1]))  # (B, K, V)
        found = []
        for row, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            end, right = len(text) - 1 - first, np.array(text[-length:])
            own = logits[row, end - length : end].astype(np.float64)  # (K, V)
            own -= own.max(axis=-1, keepdims=True)
            nats = np.log(np.exp(own).sum(axis=-1)) - own[np.arange(length), right]
            found.append((-float(nats.sum()), bool((own.argmax(axis=-1) == right).all())))
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continuations up to the first stop string. Request k of a call is sampled with the seed `seed` + k, so that
        repeated requests differ; the other options are those of `seqlab generate`.

        Raises:
            ValueError: an option is unknown or out of range, or `max_gen_toks` leaves no room for a context.
        """
        return [self._continued(number, *request.args) for number, request in enumerate(requests)]

    def _continued(self, number: int, context: str, given: dict[str, Any]) -> str:
        options: dict[str, Any] = {"temperature": 1.0, **normalize_gen_kwargs(given)}
        until, count, sampled = (options.pop(name) for name in ("until", "max_gen_toks", "do_sample"))
        own = {"max_new_tokens": count, "seed": options.get("seed", 0) + number}
        settings = self.model.settings(options | own | ({} if sampled else {"temperature": 0.0}))
        room = None if self.max_length is None else self.max_length - count + 1  # the last new token is never read
        if room is not None and room < 1:
            raise ValueError(f"max_gen_toks must be at most {self.max_length}, the length that is read; got {count}")
        [prompt] = self.model.encode([context])
        stream, pieces = self.model.codec.tokenizer.stream_decoder(), list[str]()

        def push(row: int, token: int) -> None:
            pieces.append(stream.push(token))
            if any(stop and stop in "".join(pieces) for stop in until):
                raise StopFoundError

        with suppress(StopFoundError):
            prompt = prompt[-room if room else 0 :]
            generate(self.decoder, [prompt], stop_ids=self.model.codec.stop_ids, on_token=push, **settings)
            pieces.append(stream.finish())
        return str(postprocess_generated_text("".join(pieces), until, None))


def _open(path: str, provider: ProviderName, trust: Sequence[str]) -> Any:
    """The text model of a run or a bundle."""
    if (Path(path) / "manifest.json").exists():
        return open_bundle(path, provider=provider)
    from seqlab.trained.run_text_model import open_text_model as open_run

    return open_run(path, trust=trust)


def main() -> int:
    """The harness's command line, with errors in one sentence; SEQLAB_DEBUG=1 shows the traceback."""
    try:
        cli_evaluate()
    except ValueError as error:
        if os.environ.get("SEQLAB_DEBUG"):
            raise
        print(f"seqlab: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
