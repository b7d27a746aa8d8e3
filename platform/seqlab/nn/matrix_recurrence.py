"""The matrix-valued recurrence behind all forms of linear attention, computed in chunks or step by step.

    S_t = diag(exp(log_decay_t)) S_{t-1} + erase_t (read_t^T S_{t-1}) + k_t v_t^T,    o_t = S_t^T q_t

The inputs select the rule: no decay is linear attention (Katharopoulos et al. 2020), a decay per head is RetNet and
Mamba-2, and a decay per channel is gated linear attention (Yang et al. 2023). With `beta` it is the delta rule (Yang et
al. 2024), which writes beta_t k_t (v_t - found)^T, where `found` is the decayed matrix read at k_t. With `read` and
`erase` it is RWKV-7 (Peng et al. 2025).

B batch, T length, H heads, K key width, V value width, N chunks, C chunk length.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.nn import fla
from seqlab.nn.numerics import without_autocast
from seqlab.nn.operation import operation
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.nn.updates import Updates

CHUNK = 64  # longest chunk; a power of two
SHORTEST_CHUNK = 16
SAFE_RANGE = 40.0  # exp(40) times a number leaves it well within float32


def matrix_recurrence(
    updates: Updates,
    state: Tensor,
    real: Tensor | None = None,
    *,
    single: bool = False,
    min_log_decay: float = -math.inf,
) -> tuple[Tensor, Tensor]:
    """Runs the recurrence from `state` (B, H, K, V), in at least float32.

    Uses matrix products within a chunk and a loop over chunks, or flash-linear-attention's kernels if `fla.usable`.

    Args:
        real: (B, T) bool, True = a real token; padding leaves the matrix unchanged.
        single: whether T is 1, so that a single step is computed directly.
        min_log_decay: known lower bound of a per-channel `log_decay`, which saves work; -inf = unknown.

    Returns:
        o (B, T, H, V) and the last matrix, in the dtype of `state`.
    """
    if real is not None:
        updates = _only_real(updates, real)
    if not single and fla.usable(updates):
        o, matrix = fla.run(updates, state)
        return o, matrix.to(state.dtype)
    wide = torch.promote_types(updates.v.dtype, torch.float32)
    with without_autocast(updates.v):
        updates = updates.each(lambda x: x.to(wide))
        o, matrix = one_step(updates, state.to(wide)) if single else over_time(updates, state.to(wide), min_log_decay)
    return o, matrix.to(state.dtype)


def in_turn(updates: Updates, state: Tensor, real: Tensor | None, *, single: bool) -> tuple[Tensor, Tensor]:
    """Runs the recurrence over W writes a token, of which the first decays the matrix and each is followed by a read.

    Args:
        updates: tensors (B, T, H, W, ...), and log_decay (B, T, H, K) or (B, T, H, 1).
        state, real, single: as in `matrix_recurrence`.

    Returns:
        o (B, T, H, W, V) and the last matrix.
    """
    writes = updates.k.shape[3]
    updates = updates._replace(log_decay=F.pad(updates.log_decay.unsqueeze(3), (0, 0, 0, writes - 1)))
    flat = updates.each(lambda x: x.transpose(2, 3).flatten(1, 2))  # (B, T W, H, ...) each
    if single:
        outputs = []
        for n in range(writes):
            one = Updates(*(None if x is None else x[:, n : n + 1] for x in flat))  # type: ignore[arg-type]
            o, state = matrix_recurrence(one, state, single=True)
            outputs.append(o)
        o = torch.cat(outputs, dim=1)
    else:
        real = None if real is None else real.repeat_interleave(writes, dim=1)  # (B, T W)
        o, state = matrix_recurrence(flat, state, real)
    return torch.unflatten(o, 1, (-1, writes)).transpose(2, 3), state


@operation
def one_step(updates: Updates, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """o (B, 1, H, V) and the next matrix, of one token."""
    matrix, o = _step(_without_beta(updates).each(lambda x: x.squeeze(1)), matrix)
    return o.unsqueeze(1), matrix


@operation
def over_time(updates: Updates, matrix: Tensor, min_log_decay: float) -> tuple[Tensor, Tensor]:
    """o (B, T, H, V) and the last matrix, chunk by chunk."""
    return _chunked(_without_beta(updates), matrix, min_log_decay)


def step_by_step(updates: Updates, matrix: Tensor, min_log_decay: float) -> tuple[Tensor, Tensor]:
    """Sequential reference version of `over_time`."""
    given = {name: x for name, x in _without_beta(updates)._asdict().items() if x is not None}

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        matrix, o = _step(Updates(**dict(zip(given, now, strict=True))), carry[0])
        return (matrix,), o

    o, (last,) = scan_over_time(step, (matrix,), tuple(given.values()))
    return o, last


def _only_real(updates: Updates, real: Tensor) -> Updates:
    """A pad decays nothing and writes nothing."""
    pad = ~real[:, :, None, None]  # (B, T, 1, 1)
    erase = updates.erase
    return updates._replace(
        k=updates.k.masked_fill(pad, 0.0),
        log_decay=updates.log_decay.masked_fill(pad, 0.0),
        erase=None if erase is None else erase.masked_fill(pad, 0.0),
    )


def _without_beta(updates: Updates) -> Updates:
    """Rewrites the delta rule as a write of beta k (v - found)^T, where `found` is the matrix read at `read`."""
    if updates.beta is None:
        return updates
    k, read = updates.beta * updates.k, updates.log_decay.exp() * updates.k
    return updates._replace(k=k, read=read, beta=None)


def _step(now: Updates, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the recurrence: the next matrix (B, H, K, V), and o (B, H, V)."""
    v, decayed = now.v, matrix * now.log_decay.exp().unsqueeze(-1)  # (B, H, V), (B, H, K, V)
    if now.read is not None:
        found = _read(matrix, now.read)  # (B, H, V)
        if now.erase is None:
            v = v - found
        else:
            decayed = decayed + now.erase.unsqueeze(-1) * found.unsqueeze(-2)
    matrix = decayed + now.k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, K, V)
    return matrix, _read(matrix, now.q)


def _read(matrix: Tensor, q: Tensor) -> Tensor:
    """S^T q, (B, H, V). Avoids a matrix product, which exporters cannot write in a loop for any batch size."""
    return (matrix * q.unsqueeze(-1)).sum(dim=-2)


def _chunked(updates: Updates, matrix: Tensor, min_log_decay: float) -> tuple[Tensor, Tensor]:
    """Chunk-parallel form: all chunks at once, except for the matrix at their starts.

    Step by step, a sequence takes T small sequential products. In N chunks it takes a few large ones: each query's read
    of the writes in its own chunk (C x C scores, as in attention), its read of the matrix at the start of the chunk,
    and the chunk's total update. Only the matrix is passed from chunk to chunk, in a loop of length N. The log-decay
    between two tokens is the difference of two cumulative sums.

    Without `read`, the writes are known in advance. With `read`, a write depends on the earlier writes of the chunk. In
    a chunk that starts with S, token t reads u_t = S_{t-1}^T read_t, and S_t is the decayed S plus the decayed sum over
    i <= t of k_i v_i^T + erase_i u_i^T. So u solves a triangular system over the chunk (the WY form of Yang et al.
    2024, section 3), and is linear in S: u = `by_start` S + `by_chunk`.
    """
    length = updates.v.shape[1]
    cut = updates.each(_cut)  # (B, H, N, C, ...) each
    q, k, v = cut.q, cut.k, cut.v
    log = cut.log_decay.cumsum(dim=-2)  # (B, H, N, C, K or 1), up to and including each token
    after = (log[..., -1:, :] - log).exp()  # (B, H, N, C, K or 1), from each token to the end of its chunk
    decay = log[..., -1:, :].exp().mT  # (B, H, N, K or 1, 1), of a whole chunk
    # Keys (B, H, N, K, C) as the end of the chunk sees them, and queries (B, H, N, C, K) as its start does.
    k_end, q_start, turned = (k * after).mT, q * log.exp(), None
    if cut.read is None:
        scores = _scores(q.unsqueeze(-2), k.unsqueeze(-2), log, min_log_decay)[..., 0, :, 0]  # (B, H, N, C, C)
        o, added = scores @ v, k_end @ v  # (B, H, N, C, V) and (B, H, N, K, V)
    else:
        before = F.pad(log[..., :-1, :], (0, 0, 1, 0))  # (B, H, N, C, K or 1)
        # The delta rule adds at k what it finds at -read.
        read, written = (-cut.read, [k]) if cut.erase is None else (cut.read, [k, cut.erase])
        # Token t reads the matrix decayed up to t - 1, as a query at the previous token would.
        ahead = F.pad(read[..., 1:, :], (0, 0, 0, 1))  # (B, H, N, C, K)
        # (B, H, N, C, 2, C, 1 or 2)
        scores = _scores(torch.stack((q, ahead), dim=-2), torch.stack(written, dim=-2), log, min_log_decay)
        found = F.pad(scores[..., :-1, 1, :, :], (0, 0, 0, 0, 1, 0))  # (B, H, N, C, C, 1 or 2)
        erase_end = k_end if cut.erase is None else (cut.erase * after).mT  # (B, H, N, K, C)

        # u = read S + found_k v + found_erase u: a unit lower triangular system in u; both parts are solved at once.
        right = torch.cat((read * before.exp(), found[..., 0] @ v), dim=-1)  # (B, H, N, C, K + V)
        solved = torch.linalg.solve_triangular(-found[..., -1], right, upper=False, unitriangular=True)
        by_start, by_chunk = solved.split((k.shape[-1], v.shape[-1]), dim=-1)  # (B, H, N, C, K), (B, H, N, C, V)
        q_scores, q_erased = scores[..., 0, :, 0], scores[..., 0, :, -1]  # (B, H, N, C, C) each
        # (B, H, N, C, V), (B, H, N, K, V)
        o, added = q_scores @ v + q_erased @ by_chunk, k_end @ v + erase_end @ by_chunk
        q_start, turned = q_start + q_erased @ by_start, erase_end @ by_start  # (B, H, N, C, K), (B, H, N, K, K)

    starts = []  # N matrices (B, H, K, V)
    for n in range(v.shape[2]):
        starts.append(matrix)
        kept = decay[:, :, n] * matrix
        matrix = (kept if turned is None else kept + turned[:, :, n] @ matrix) + added[:, :, n]
    o = o + q_start @ torch.stack(starts, dim=2)
    return o.flatten(2, 3)[:, :, :length].transpose(1, 2), matrix  # (B, H, N, C, V) to (B, T, H, V)


def _cut(x: Tensor) -> Tensor:
    """(B, T, H, K) to (B, H, N, C, K), with zeros after the end: neither decay nor input."""
    length, size = x.shape[1], SHORTEST_CHUNK
    while size < min(length, CHUNK):
        size *= 2
    chunks = (length + size - 1) // size
    x = F.pad(x, (0, 0, 0, 0, 0, chunks * size - length))  # (B, N C, H, K)
    return torch.unflatten(x, 1, (chunks, size)).permute(0, 3, 1, 2, 4).contiguous()  # (B, H, N, C, K)


def _scores(x: Tensor, y: Tensor, log: Tensor, min_log_decay: float) -> Tensor:
    """Scores of X readers per token, x (..., C, X, K), with Y writers per token, y (..., C, Y, K), in a chunk.

    Returns:
        (..., C, X, C, Y): at t, i the sum over channels of x_t y_i exp(log_t - log_i) for i <= t, and 0 for i > t. The
        logs decrease with time, so no exponent that counts is above 0, however strong the decay.
    """
    size = log.shape[-2]
    if log.shape[-1] == 1:
        weights = (log - log.mT).tril().exp().tril()  # (..., C, C)
        return _products(x, y) * weights[..., :, None, :, None]
    if size > 1 and size * -min_log_decay > SAFE_RANGE:
        # Pairs across the middle are factored there: decay from y to the middle, then from the middle to x.
        # (..., 2, C/2, X, K), (..., 2, C/2, Y, K)
        x, y = torch.unflatten(x, -3, (2, -1)), torch.unflatten(y, -3, (2, -1))
        log = torch.unflatten(log, -2, (2, -1)).unsqueeze(-2)  # (..., 2, C/2, 1, K)
        # log_0 and log_1 (..., C/2, 1, K), x_1 (..., C/2, X, K), y_0 (..., C/2, Y, K)
        (log_0, log_1), x_1, y_0 = log.unbind(-4), x.select(-4, 1), y.select(-4, 0)
        middle = log_0[..., -1:, :, :]  # (..., 1, 1, K)
        across = _products(x_1 * (log_1 - middle).exp(), y_0 * (middle - log_0).exp())  # (..., C/2, X, C/2, Y)
        first, second = _scores(x, y, log.squeeze(-2), min_log_decay).unbind(-5)  # (..., C/2, X, C/2, Y) each
        # (..., C, X, C, Y)
        return torch.cat((F.pad(first, (0, 0, 0, size // 2)), torch.cat((across, second), dim=-2)), dim=-4)
    since = (log - log[..., :1, :]).unsqueeze(-2)  # (..., C, 1, K)
    below = torch.ones(size, size, dtype=x.dtype, device=x.device).tril()  # (C, C)
    return _products(x * since.exp(), y * (-since).exp()) * below[:, None, :, None]


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Inner products of all pairs: (..., C, X, K) and (..., C, Y, K) to (..., C, X, C, Y)."""
    flat = x.flatten(-3, -2) @ y.flatten(-3, -2).mT  # (..., C X, C Y)
    return torch.unflatten(torch.unflatten(flat, -1, y.shape[-3:-1]), -3, x.shape[-3:-1])


def recurrence_flops(new: int, keys: int, values: int, *, triangular: bool = False, writers: int = 0) -> int:
    """FLOPs of one head over `new` tokens in chunks, excluding the solution of the triangular system.

    Args:
        keys, values: key width K and value width V.
        triangular: whether scores are computed below the diagonal only, as for a per-channel decay.
        writers: number of write vectors per token if the matrix is read before the write; 0 = it is not read.
    """
    if new == 1:  # write and output read, plus the read before the write and the erase
        return 2 * keys * values * (2 + writers)
    size = SHORTEST_CHUNK
    while size < min(new, CHUNK):
        size *= 2
    pairs = size * (size + 1) // 2 if triangular else size * size
    if not writers:
        chunk = pairs * keys + size * size * values + 2 * size * keys * values
    else:
        chunk = 2 * writers * pairs * keys + size * size * (3 * values + keys)
        chunk += size * keys * (3 * values + keys) + keys * keys * values
    return 2 * -(-new // size) * chunk
