"""The golden file: inputs, outputs of a float64 copy of the model, and PyTorch's own error relative to them.

T length, F features, R rows, N new tokens, V vocabulary.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.decoding import Sampling, generate
from seqlab.decoding.text import prompt_tokens
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.files.phases import counted
from seqlab.mixer import State
from seqlab_data.tokenizers import Tokenizer
from seqlab_export.capture.graph_forms import forms_of, longest_input, num_tokens
from seqlab_export.capture.plan import ExportPlan
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.proof.drawn_tokens import DrawnTokens
from seqlab_export.proof.fake_quantized import FakeQuantized
from seqlab_export.proof.own_error import check_step, errors_at_lengths, largest
from seqlab_export.proof.rounding import FEW, TermByTerm, draws_of
from seqlab_export.proof.torch_outputs import (
    cast,
    encoded,
    encoded_in_one_call,
    in_one_call,
    logits_after,
    long_outputs,
    outputs,
)
from seqlab_export.proof.widened import in_float64
from seqlab_export.runner.cases import (
    ROWS,
    Arrays,
    cases,
    encoder_cases,
    groups,
    long_cases,
    one_call_lengths,
    relative_errors,
    rms,
)
from seqlab_export.runner.greedy import trace
from seqlab_export.runner.manifest import GraphInfo, TensorInfo
from seqlab_export.runner.texts import as_bytes

FILE_NAME = "golden.npz"

PROMPT_LENGTHS = (1, 4)
NEW_TOKENS = 12
WHOLE_TOKENS = 32
WHOLE_NUMBERS = 2**17
"""Maximum number of logits stored in full: 512 kB."""

LIKELIEST = 64
"""Number of largest logits stored for each greedy token."""

_SEED = 20


def write_golden(plan: ExportPlan, folder: Path, declared: Arrays | None = None) -> None:
    """Writes the golden file, an .npz file. For a decoder it contains:

    - `CASE/tokens` (R, T), for each of `cases.cases` and `cases.long_cases`;
    - `CASE/OUTPUT`, the values that `cases.select` takes from each output of the float64 model;
    - `CASE/torch/GROUP`, the relative RMS error of this model in PyTorch, in this precision, for each of
      `cases.groups`: the largest error over reading all tokens in one call, token by token, and in one call with sums
      term by term (`rounding.TermByTerm`), which bounds the effect of rounding alone on any machine;
    - with a tokenizer, `greedy/prompt_text` and `greedy/text`, the first prompt and its continuation, as UTF-8;
    - `greedy/prompt_ROW` and `greedy/tokens` (R, N), greedy text of the float64 model, the ids and logits of the
      `LIKELIEST` tokens at each position, `greedy/likeliest` and `greedy/logits`, and PyTorch's error at the position
      where it is largest, `greedy/torch/logits`;
    - with a source, `CASE/source` and `greedy/source`, the name of the encoder case whose inputs it reads;
    - `one call/tokens` (1, T), `one call/logits`, the concatenated values that `cases.select_call` takes at each of
      `cases.one_call_lengths`, and `one call/torch/logits`, PyTorch's error at the length where it is largest;
    - `whole/inputs` (R, T), texts sampled from the float64 model, `whole/logits` (R, T, V), all of its logits there,
      and `whole/source`.

    For an encoder it contains `encoder/CASE/inputs` (R, T) or (R, T, F), with outputs and errors in the same way, and
    likewise `encoder/one call`, `whole/inputs` and `whole/logits`.

    Args:
        declared: additional arrays to store.

    Raises:
        ValueError: the model's `step` and `forward` differ.
    """
    golden = _Golden(plan.model, plan.precision, reduced=plan.stated["proof"] == "reduced")
    golden.arrays |= declared or {}
    if golden.masks:
        golden.add_encoder()
    if "model" in golden.forms:
        golden.add_decoder()
        golden.add_greedy(plan.tokenizers.get("tokenizer"))
    if plan.chooses_one:
        golden.add_whole()
    arrays = {name: _narrowed(array) for name, array in golden.arrays.items()}
    np.savez(folder / FILE_NAME, allow_pickle=False, **arrays)


class _Golden:
    """The arrays to write, computed by a model's forms and by those of its float64 copy.

    Attributes:
        masks: padding masks of the encoder's cases, by case name.
    """

    def __init__(self, model: Any, precision: Precision, *, reduced: bool) -> None:
        self.precision, self.reduced = precision, reduced
        self.references: dict[str, Any] = forms_of(in_float64(model))
        self.forms: dict[str, Any] = forms_of(in_dtype(model, precision))
        self.own = FakeQuantized(precision) if precision in ("int8", "int4") else nullcontext()
        # The quantisation error is far larger than the rounding error, in any order of summation.
        self.modes = [self.own] if precision in ("int8", "int4") else [self.own, TermByTerm(0)]
        self.arrays: dict[str, NDArray[np.generic]] = {}
        self.generator = np.random.default_rng(_SEED)
        self.drawn = DrawnTokens(self.generator)
        encoder = self.forms.get("encoder")
        longest = longest_input(model)
        self.masks = {} if encoder is None else dict(encoder_cases(encoder.info(), longest, reduced=reduced))

    def add_encoder(self) -> None:
        form, reference = self.forms["encoder"], self.references["encoder"]
        info = form.info()
        for case, pad_mask in counted("reference of the encoder", self.masks.items()):
            inputs = self._draw(info.inputs[0], pad_mask)
            self.arrays[f"{case}/inputs"] = inputs
            [expected] = encoded(reference, inputs, pad_mask, info, nullcontext())
            found = [one for turn in self._turns(pad_mask) for one in encoded(form, inputs, pad_mask, info, *turn)]
            self._judge(case, info, expected, found)
        lengths = one_call_lengths(longest_input(form.model), reduced=self.reduced)
        inputs = self._draw(info.inputs[0], np.ones((1, lengths[-1]), dtype=np.bool_))
        self.arrays["encoder/one call/inputs"] = inputs
        texts = [encoded_in_one_call(reference, inputs, info, lengths, nullcontext())]
        texts += [encoded_in_one_call(form, inputs, info, lengths, mode) for mode in self.modes]
        # Over the two classes of one text the error is mostly chance, so it is at least the largest of all cases.
        least = {
            group: max(float(self.arrays[f"{case}/torch/{group}"]) for case in self.masks) for group in groups(info)
        }
        self._judge_texts("encoder/one call", groups(info), texts, least)

    def add_decoder(self) -> None:
        form, reference = self.forms["model"], self.references["model"]
        info, model = form.info(), form.model
        short = [*cases(model.max_seq_len, reduced=self.reduced)]
        long = [*long_cases(model.max_seq_len, reduced=self.reduced)]
        lengths = one_call_lengths(model.max_seq_len, model.first_call, reduced=self.reduced)
        # A recurrent state has no time axis, unlike a cache.
        state = [output for output in info.outputs if output.name != "logits"]
        recurrent = any(entry.dtype.startswith("float") and not {"S+T", "C"} & {*entry.dims} for entry in state)
        for number, (case, pad_mask) in enumerate(counted("reference of the decoder", short)):
            tokens, starts = self._begin_case(number, case, pad_mask)
            [expected] = outputs(reference, tokens, pad_mask, info, starts[0], nullcontext())
            if not self.reduced or number < len(short) - 1:  # The last case has most of the steps.
                [stepped] = outputs(self.references["step"], tokens, pad_mask, info, starts[0], nullcontext())
                check_step(stepped, expected, case)
            given = (tokens, pad_mask, info, starts[1])
            found = outputs(self.forms["step"], *given, self.own)
            found += [one for turn in self._turns(pad_mask) for one in outputs(form, *given, *turn)]
            self._judge(case, info, expected, found)
        for number, (case, pad_mask) in enumerate(counted("reference of long texts", long)):
            tokens, starts = self._begin_case(number, case, pad_mask)
            expected = long_outputs(self.references, tokens, pad_mask, info, starts[0], nullcontext(), "prefill")
            found = [long_outputs(self.forms, tokens, pad_mask, info, starts[1], mode) for mode in self.modes]
            if recurrent:
                # A graph may iterate over tokens where PyTorch sums over all in one operation, with a smaller error.
                found.append(long_outputs(self.forms, tokens, pad_mask, info, starts[1], self.own, "step"))
            self._judge(case, info, expected, found)

        pad_mask = np.ones((1, lengths[-1]), dtype=np.bool_)
        tokens, starts = self._begin_case(0, "one call", pad_mask)
        # The model is causal, so one text gives the logits at all lengths.
        texts = [in_one_call(self.references, tokens, info, starts[0], lengths, nullcontext())]
        whole = (self.forms, tokens, info, starts[1], lengths)
        texts += [in_one_call(*whole, mode) for mode, copies in self._turns(pad_mask) for _ in range(copies)]
        if recurrent:
            texts.append(in_one_call(*whole, self.own, "step"))
        self._judge_texts("one call", {"logits": ["logits"]}, texts, {"logits": 0.0})

    def _turns(self, pad_mask: NDArray[np.bool_]) -> list[tuple[Any, int]]:
        """The modes in which PyTorch computes a case, and the number of its copies that one batch reads in each."""
        draws, most = draws_of(pad_mask.size, reduced=self.reduced), max(FEW // pad_mask.size, 1)
        drawn = [(mode, min(most, draws - first)) for mode in self.modes[1:] for first in range(0, draws, most)]
        return [(self.own, 1), *drawn]

    def _begin_case(self, number: int, case: str, pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], list[State]]:
        """The tokens of a decoder's case, and the first states of the reference and the model."""
        references, forms = self.references["model"].model, self.forms["model"].model
        tokens = self.drawn.tokens(forms.vocab_size, pad_mask)
        self.arrays[f"{case}/tokens"] = tokens
        # The longest source is paired with the shortest target.
        source = [*self.masks][-1 - number % len(self.masks)] if self.masks else None
        if source is not None:
            self.arrays[f"{case}/source"] = np.array(source)
        return tokens, [self._start(model, source, len(tokens)) for model in (references, forms)]

    def add_greedy(self, tokenizer: Tokenizer | None) -> None:
        model = self.references["model"].model
        longest = model.max_seq_len or 2**30
        prompts = [
            self.generator.integers(model.vocab_size, size=min(length, longest), dtype=np.int64)
            for length in PROMPT_LENGTHS
        ]
        if tokenizer is not None:
            text = tokenizer.decode(self.generator.integers(tokenizer.vocab_size, size=64).tolist())[:3]
            prompts[0] = np.array(prompt_tokens(tokenizer, text)[:longest], dtype=np.int64)
            self.arrays["greedy/prompt_text"] = as_bytes(text)
        self.arrays |= {f"greedy/prompt_{row}": prompt for row, prompt in enumerate(prompts)}
        source = next(iter(self.masks), None)
        if source is not None:
            self.arrays["greedy/source"] = np.array(source)
        num_tokens = min(NEW_TOKENS, longest - max(map(len, prompts)) + 1)
        decoder = TorchDecoder(model, self._start(model, source, len(prompts)))
        greedy = trace(decoder, [prompt.tolist() for prompt in prompts], num_tokens)
        if tokenizer is not None:
            self.arrays["greedy/text"] = as_bytes(tokenizer.decode(greedy.tokens[0].tolist()))
        likeliest = np.argsort(-greedy.logits, axis=-1, kind="stable")[..., :LIKELIEST]
        logits = np.take_along_axis(greedy.logits, likeliest, axis=-1)
        self.arrays |= {"greedy/tokens": greedy.tokens, "greedy/likeliest": likeliest, "greedy/logits": logits}
        start = self._start(self.forms["model"].model, source, len(prompts))
        errors = []
        for mode in self.modes:
            found = logits_after(self.forms, prompts, greedy.tokens, start, mode)
            difference = np.take_along_axis(found, likeliest, axis=-1) - logits
            errors += [rms(part) / (rms(logits) or 1.0) for part in difference.reshape(-1, likeliest.shape[-1])]
        self._tell_error("greedy", "logits", errors)

    @torch.no_grad()
    def add_whole(self) -> None:
        if "model" not in self.forms:
            case, pad_mask = next((case, mask) for case, mask in self.masks.items() if mask.all() and mask.shape[1] > 1)
            inputs = self.arrays[f"{case}/inputs"]
            logits = self.references["encoder"](
                cast(inputs, self.references["encoder"].model), torch.from_numpy(pad_mask)
            )
        else:
            model = self.references["model"].model
            places = max(WHOLE_NUMBERS // model.vocab_size, 1)
            length = min(WHOLE_TOKENS, places, model.max_seq_len or WHOLE_TOKENS)
            rows = min(ROWS, places // length)
            source = next(iter(self.masks), None)
            if source is not None:
                self.arrays["whole/source"] = np.array(source)
            state = self._start(model, source, rows)
            prompts = self.generator.integers(model.vocab_size, size=(rows, 1), dtype=np.int64)
            inputs = prompts
            if length > 1:
                written = generate(
                    TorchDecoder(model, state),
                    prompts.tolist(),
                    max_new_tokens=length - 1,
                    sampling=Sampling(temperature=1.0, seed=_SEED),
                )
                inputs = np.hstack([prompts, np.array(written, dtype=np.int64)])
            tokens = torch.from_numpy(inputs)
            logits, _ = self.references["model"](tokens, torch.ones_like(tokens, dtype=torch.bool), state)
        rows = max(WHOLE_NUMBERS // logits[0].numel(), 1)
        self.arrays |= {"whole/inputs": inputs[:rows], "whole/logits": logits[:rows].numpy()}

    def _judge(self, case: str, info: GraphInfo, expected: Arrays, found: list[Arrays]) -> None:
        self.arrays |= {f"{case}/{name}": values for name, values in expected.items()}
        for group, names in groups(info).items():
            self._tell_error(case, group, [rms(relative_errors(actual, expected, names)) for actual in found])

    def _judge_texts(
        self, case: str, judged: dict[str, list[str]], texts: list[list[Arrays]], least: dict[str, float]
    ) -> None:
        """`_judge` for outputs at each length; `texts` starts with the reference, followed by PyTorch's results."""
        for group, names in judged.items():
            expected = {name: np.concatenate([at_length[name] for at_length in texts[0]]) for name in names}
            self.arrays |= {f"{case}/{name}": values for name, values in expected.items()}
            own = [] if group == "counters" else errors_at_lengths(names, texts, expected)
            self._tell_error(case, group, [least[group], *own])

    def _tell_error(self, case: str, group: str, errors: list[float]) -> None:
        """Stores the largest error as PyTorch's own."""
        not_finite = f"{self.precision} is not finite ({case}, {group})"
        self.arrays[f"{case}/torch/{group}"] = np.array(largest(errors, not_finite))

    @torch.no_grad()
    def _start(self, model: Any, source: str | None, rows: int) -> State:
        """The first state of `rows` rows, after reading the inputs of an encoder case, if `source` names one."""
        state: State
        if source is None:
            state = model.init_state(rows)
        else:
            inputs = cast(self.arrays[f"{source}/inputs"][:rows], model)
            state = model.begin(inputs, torch.from_numpy(self.masks[source][:rows]))
        return state

    def _draw(self, info: TensorInfo, pad_mask: NDArray[np.bool_]) -> NDArray[np.generic]:
        """Inputs: tokens (R, T), or features (R, T, F)."""
        if info.dtype == "int64":
            return self.drawn.tokens(num_tokens(self.forms["encoder"].model), pad_mask)
        return self.generator.standard_normal((*pad_mask.shape, int(info.dims[2])), dtype=np.float32)


def _narrowed(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The array with half the bytes per element. The rounding error of 3e-8 is far below any budget."""
    if array.ndim and array.dtype == np.float64:
        return array.astype(np.float32)
    fits = array.ndim and array.dtype == np.int64 and not np.any(np.abs(array) >= 2**31)
    return array.astype(np.int32) if fits else array
