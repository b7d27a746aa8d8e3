"""The laws, each a function of a subject and a length. A model over causal mixers must satisfy the same laws.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import torch
from torch import Tensor

from seqlab.laws.subject import Found, Law, Subject, must, off
from seqlab.mixer import State, check_declared, fix_capacity

BATCH = 3
AFTER = 4  # tokens read to compare continuations of states
GARBAGE = 50.0


@torch.no_grad()
def forward_is_the_unrolled_step(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, length)
    y, state = subject.module(x)
    stepped_state, outputs = subject.module.init_state(BATCH), []
    if subject.first > 1:
        begun, stepped_state = subject.module(x[:, : subject.first], stepped_state)
        outputs, x = [begun], x[:, subject.first :]
    if x.shape[1]:
        stepped, stepped_state = _steps(subject, x, stepped_state)
        outputs.append(stepped)
    yield off(torch.cat(outputs, dim=1), y, "the unrolled step")
    yield _continued_alike(subject, stepped_state, state)


@torch.no_grad()
def forward_is_forward_in_chunks(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, length)
    y, state = subject.module(x)
    for sizes in ([subject.first, 3, 1, 5], [max(subject.first, length - 1), 1]):
        chunked, chunked_state = _chunks(subject, x, sizes)
        yield off(chunked, y, f"forward in chunks of {sizes}")
        yield _continued_alike(subject, chunked_state, state)


@torch.no_grad()
def no_state_is_the_initial_state(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, length)
    y, state = subject.module(x)
    from_initial, after_initial = subject.module(x, subject.module.init_state(BATCH))
    yield off(from_initial, y, "forward from init_state")
    yield _continued_alike(subject, after_initial, state)


@torch.no_grad()
def later_inputs_move_no_earlier_output(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, length)
    y, _ = subject.module(x)
    for t in {0} | {t for t in (length // 2, length - 1) if t >= subject.first}:
        changed = x.clone()
        changed[:, t:] = _different(subject, x[:, t:])
        moved, _ = subject.module(changed)
        yield must(torch.equal(moved[:, :t], y[:, :t]), f"earlier outputs, the input changed at {t}")
        yield must(not torch.equal(moved[:, t], y[:, t]), f"what the output at {t} says of its own input")


@torch.no_grad()
def padding_changes_nothing(subject: Subject, length: int) -> Iterator[Found]:
    """Padding changes nothing, regardless of its side, amount and content in each row."""
    length = max(length, subject.first)
    lengths = (length, max(subject.first, length // 2), subject.first)
    x, after = subject.draw(BATCH, length), subject.draw(BATCH, AFTER)
    alone = [_alone(subject, x[row, :n], after[row]) for row, n in enumerate(lengths)]
    for sides, extra in (("left", "left", "left"), 0), (("right", "right", "right"), 3), (("left", "right", "left"), 5):
        pad_mask = torch.stack([_mask(length + extra, n, side) for n, side in zip(lengths, sides, strict=True)])
        padded = _garbage(subject, *pad_mask.shape)
        for row, n in enumerate(lengths):
            padded[row, pad_mask[row]] = x[row, :n]
        y, state = subject.module(padded, pad_mask=pad_mask)
        continued, _ = subject.module(after, state)
        stepped, _ = _steps(subject, after, state)
        for row, (expected, expected_after) in enumerate(alone):
            where = f"row {row} of {lengths}, padded on the {sides[row]}"
            yield off(y[row, pad_mask[row]], expected, where)
            yield off(continued[row], expected_after, f"{where}, continued")
            yield off(stepped[row], expected_after, f"{where}, continued by step")


@torch.no_grad()
def padding_changes_nothing_in_chunks(subject: Subject, length: int) -> Iterator[Found]:
    """Padding changes nothing in chunks padded on either side, even if some or all rows are padding only."""
    length = max(length, subject.first)
    half = max((length + 1) // 2, subject.first)
    counts = [(length, 0, half), (0, half, length), (0, 0, 0), (half, length, 1)]
    tokens = [subject.draw(1, sum(chunk[row] for chunk in counts))[0] for row in range(BATCH)]
    after = subject.draw(BATCH, AFTER)
    alone = [_alone(subject, tokens[row], after[row]) for row in range(BATCH)]
    outputs: list[list[Tensor]] = [[] for _ in range(BATCH)]
    state, read = None, [0] * BATCH
    for number, chunk in enumerate(counts):
        sides = ["left" if (row + number) % 2 else "right" for row in range(BATCH)]
        pad_mask = torch.stack([_mask(length + 1, n, side) for n, side in zip(chunk, sides, strict=True)])
        padded = _garbage(subject, *pad_mask.shape)
        for row, n in enumerate(chunk):
            padded[row, pad_mask[row]] = tokens[row][read[row] : read[row] + n]
            read[row] += n
        y, state = subject.module(padded, state, pad_mask=pad_mask)
        for row in range(BATCH):
            outputs[row].append(y[row, pad_mask[row]])
    continued, _ = subject.module(after, state)
    for row, (expected, expected_after) in enumerate(alone):
        yield off(torch.cat(outputs[row]), expected, f"row {row} in padded chunks")
        yield off(continued[row], expected_after, f"row {row} in padded chunks, continued")


@torch.no_grad()
def a_fixed_capacity_changes_nothing(subject: Subject, length: int) -> Iterator[Found]:
    """A fixed capacity changes nothing if keys are cached: in padded chunks, by step, with or without spare room."""
    length = max(length, subject.first)
    if not any(entry.kind == "growing" for entry in subject.module.state_spec()):
        return
    lengths = (length, max(subject.first, length // 2), subject.first)
    x, after = subject.draw(BATCH, length), subject.draw(BATCH, AFTER)
    alone = [_alone(subject, x[row, :n], after[row]) for row, n in enumerate(lengths)]
    for side, spare in (("left", 0), ("right", 5)):
        pad_mask = torch.stack([_mask(length + 2, n, side) for n in lengths])
        padded = _garbage(subject, *pad_mask.shape)
        for row, n in enumerate(lengths):
            padded[row, pad_mask[row]] = x[row, :n]
        fix_capacity(subject.module, length + AFTER + spare)
        y, state = subject.module(padded, pad_mask=pad_mask)
        begun, half = subject.module(after[:, :2], state)
        stepped, end = _steps(subject, after[:, 2:], half)
        start = subject.module.init_state(BATCH)
        fix_capacity(subject.module, None)
        for row, (expected, expected_after) in enumerate(alone):
            yield off(y[row, pad_mask[row]], expected, f"row {row} of {lengths}, padded on the {side}")
            yield off(torch.cat((begun, stepped), dim=1)[row], expected_after, f"row {row}, continued")
        same = [entry.shape for entry in end.values()] == [entry.shape for entry in start.values()]
        yield must(same, "the capacity")


@torch.no_grad()
def rows_do_not_see_each_other(subject: Subject, length: int) -> Iterator[Found]:
    x, after = subject.draw(BATCH, max(length, subject.first)), subject.draw(BATCH, AFTER)
    y, state = subject.module(x)
    continued, _ = _steps(subject, after, state)
    for row in range(BATCH):
        expected, expected_after = _alone(subject, x[row], after[row])
        yield off(y[row], expected, f"row {row} in a batch")
        yield off(continued[row], expected_after, f"row {row} in a batch, continued")


@torch.no_grad()
def state_is_flat_ordered_and_never_changed(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, length)
    initial = subject.module.init_state(BATCH)
    state: State = subject.module(x)[1]
    for start in (initial, state):
        before = {name: entry.clone() for name, entry in start.items()}
        for new in (subject.module(x[:, :1], start)[1], subject.module.step(x[:, 0], start)[1]):
            yield must(list(new) == list(initial), "the entries and their order")
            for name, entry in new.items():
                yield must(entry.shape[0] == BATCH, f"the batch, which is first, of {name} {tuple(entry.shape)}")
                yield must(entry.dtype == initial[name].dtype, f"the dtype of {name}, {entry.dtype}")
        yield must(list(start) == list(before), "the entries of the given state")
        for name, entry in start.items():
            yield must(torch.equal(entry, before[name]), f"{name}, which must not be changed in place")


@torch.no_grad()
def state_is_as_it_is_declared(subject: Subject, length: int) -> Iterator[Found]:
    """The state matches its declaration. Raises ValueError if it does not."""
    x, spec = subject.draw(1, length), subject.module.state_spec()
    for seq_len, state in ((0, subject.module.init_state(1)), (length, subject.module(x)[1])):
        check_declared(state, spec, seq_len, torch.float64)
        own = [state[entry.name] for entry in spec if entry.kind not in ("counter", "source")]
        held = sum(entry.numel() for entry in own)
        yield must(subject.module.state_size(seq_len) == held, f"state_size({seq_len})")
    start = subject.module.init_state(2)
    for entry in spec:
        initial = entry.kind == "source" or bool((start[entry.name] == entry.initial).all())
        yield must(initial, f"the initial value of {entry.name}")


def gradients_flow_through_the_state(subject: Subject, length: int) -> Iterator[Found]:
    x = subject.draw(BATCH, max(length, subject.first) + 1)
    cut = max((length + 1) // 2, subject.first)
    leaves = [*subject.module.parameters(), *([x.requires_grad_()] if x.is_floating_point() else [])]

    def gradients(y: Tensor) -> tuple[Tensor, ...]:
        ramp = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        return torch.autograd.grad((ramp * y).sum(), leaves, materialize_grads=True)

    whole = gradients(subject.module(x)[0][:, cut:])
    _, state = subject.module(x[:, :cut])
    chunked = gradients(subject.module(x[:, cut:], state)[0])
    for ours, expected in zip(chunked, whole, strict=True):
        yield off(ours, expected, "a gradient through the state")


@torch.no_grad()
def padding_changes_nothing_both_ways(subject: Subject, length: int) -> Iterator[Found]:
    """Padding on either side changes nothing, and there is no state."""
    x = subject.draw(2, length)
    expected, _ = subject.module(x)
    for before, after in ((3, 0), (0, 5), (2, 2)):
        padded = torch.cat((GARBAGE * subject.draw(2, before), x, GARBAGE * subject.draw(2, after)), dim=1)
        pad_mask = torch.zeros(2, before + length + after, dtype=torch.bool)
        pad_mask[:, before : before + length] = True
        y, state = subject.module(padded, pad_mask=pad_mask)
        yield off(y[:, before : before + length], expected, f"{before} pads before and {after} after")
        yield must(state == {}, "the state, which is none")


CAUSAL: tuple[Law, ...] = (
    state_is_as_it_is_declared,
    forward_is_the_unrolled_step,
    forward_is_forward_in_chunks,
    no_state_is_the_initial_state,
    later_inputs_move_no_earlier_output,
    padding_changes_nothing,
    padding_changes_nothing_in_chunks,
    a_fixed_capacity_changes_nothing,
    rows_do_not_see_each_other,
    state_is_flat_ordered_and_never_changed,
    gradients_flow_through_the_state,
)
BOTH_WAYS: tuple[Law, ...] = (padding_changes_nothing_both_ways,)
"""Laws of non-causal mixers."""


def _steps(subject: Subject, x: Tensor, state: State) -> tuple[Tensor, State]:
    outputs = []
    for t in range(x.shape[1]):
        y_t, state = subject.module.step(x[:, t], state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1), state


def _chunks(subject: Subject, x: Tensor, sizes: list[int]) -> tuple[Tensor, State]:
    outputs, state, start = [], None, 0
    for size in cycle(sizes):
        y, state = subject.module(x[:, start : start + size], state)
        outputs.append(y)
        start += size
        if start >= x.shape[1]:
            return torch.cat(outputs, dim=1), state
    raise AssertionError


def _continued_alike(subject: Subject, state: State, expected: State) -> Found:
    """Compares the entries of two states and the outputs that continue from them."""
    if list(state) != list(expected):
        return must(False, "the entries of the state")
    after = subject.draw(BATCH, AFTER)
    return off(subject.module(after, state)[0], subject.module(after, expected)[0], "the continuation")


def _alone(subject: Subject, tokens: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of one row (T, ...), alone and without padding, and of its continuation `after`."""
    y, state = subject.module(tokens.unsqueeze(0))
    return y[0], subject.module(after.unsqueeze(0), state)[0][0]


def _mask(length: int, num_real: int, side: str) -> Tensor:
    """Mask (length,) bool with `num_real` real tokens, and padding on `side`."""
    index = torch.arange(length)
    return index >= length - num_real if side == "left" else index < num_real


def _garbage(subject: Subject, batch: int, length: int) -> Tensor:
    """Non-zero contents for padding."""
    x = subject.draw(batch, length)
    return GARBAGE * x if x.is_floating_point() else x


def _different(subject: Subject, x: Tensor) -> Tensor:
    return GARBAGE - x if x.is_floating_point() else (x + 1) % subject.module.vocab_size
