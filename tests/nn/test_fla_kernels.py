"""Real kernels of flash-linear-attention without a device: compiled for sm_90, and run by Triton's interpreter.

Run as a program it does one of the two and prints what it found, since Triton reads TRITON_INTERPRET on import.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from seqlab.laws import error
from seqlab.nn import fla
from seqlab.nn.matrix_recurrence import step_by_step
from seqlab.nn.updates import Updates
from tolerances import TOLERANCE

KERNELS = ("simple_gla", "gla", "gated_delta_rule")
LENGTH = 100  # two chunks of 64, the second not full
HOPPER_SHARED = 232_448  # bytes of shared memory that a block may have
MISSING = [name for name in ("triton", "fla") if importlib.util.find_spec(name) is None]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not run: needs {' and '.join(MISSING)}")]


def child(kernel: str, cache: Path, **environment: str) -> Any:
    """Findings of this file as a program; an empty cache, else nothing compiles and made-up timings stay."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(cache)} | environment
    done = subprocess.run([sys.executable, __file__, kernel], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernels_compile_for_hopper(kernel: str, tmp_path: Path) -> None:
    compiled = child(kernel, tmp_path, TRITON_INTERPRET="0")
    assert {"fwd", "bwd"} <= {part for name, *_ in compiled for part in name.split("_")}
    for name, target, shared in compiled:
        assert target.startswith("sm_90") and shared <= HOPPER_SHARED, name


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_interpreted_kernels_compute_the_same(kernel: str, tmp_path: Path) -> None:
    """In float32 and float16: the interpreter multiplies the bits of bfloat16 (Triton's issue 11584)."""
    for dtype, (right, wrong) in child(kernel, tmp_path, TRITON_INTERPRET="1").items():
        tolerance = TOLERANCE[getattr(torch, dtype)]
        assert max(right) <= tolerance < wrong[0], f"{dtype}: {right}, with a wrong scale {wrong}"


def with_gradients(
    kernel: str, dtype: torch.dtype, width: int, *, reference: bool = False, scale: float = 1.0
) -> list[Tensor]:
    """o, the last matrix, and the gradients of q, k, v, log_decay, the state and beta."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.promote_types(dtype, torch.float32)

    def leaf(of: torch.dtype, *shape: int) -> Tensor:
        x = torch.rand(*shape, generator=generator, dtype=torch.float64).to(of)
        return x.to(torch.float64 if reference else of).requires_grad_()

    q, k, v = (leaf(dtype, 2, LENGTH, 2, width) for _ in range(3))
    g, state = leaf(wide, 2, LENGTH, 2, width if kernel == "gla" else 1), leaf(wide, 2, 2, width, width)
    beta = leaf(dtype, 2, LENGTH, 2, 1) if kernel == "gated_delta_rule" else None
    updates = Updates(scale * (q - 0.5), torch.nn.functional.normalize(k - 0.5, dim=-1), v - 0.5, -g, beta)
    o, matrix = step_by_step(updates, state, -math.inf) if reference else fla.run(updates, state)
    inputs = [q, k, v, g, state] + ([] if beta is None else [beta])
    loss = o.double().square().sum() + matrix.double().square().sum()
    return [o, matrix, *torch.autograd.grad(loss, inputs)]


def hopper() -> Any:
    """Triton's driver of a Hopper that is not there; each kernel's first configuration is the fastest."""
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]

    class Hopper:
        utils = property(lambda self: self)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)
        get_benchmarker = staticmethod(lambda: lambda call, quantiles: [0.0] * 3)
        get_device_properties = staticmethod(lambda i: {"max_shared_mem": HOPPER_SHARED, "multiprocessor_count": 132})

    return Hopper()


def compiled(kernel: str) -> list[tuple[str, str, int]]:
    """Name, target and shared memory of each kernel that a step in bfloat16 would launch."""
    from triton.runtime.jit import JITFunction  # type: ignore[import-not-found]

    plain, found = JITFunction.run, []

    def run(self: Any, *args: Any, **options: Any) -> None:
        made = plain(self, *args, **options | {"warmup": True})
        target = made.asm["ptx"].split(".target ")[1].split()[0]
        found.append((made.metadata.name, target, made.metadata.shared))

    with patch.object(JITFunction, "run", run):
        with_gradients(kernel, torch.bfloat16, width=64)
    return found


def interpreted(kernel: str) -> dict[str, list[list[float]]]:
    """Errors of each result in each dtype, and with queries that are scaled wrongly."""
    from triton.runtime import interpreter  # type: ignore[import-not-found]

    class Loops(interpreter.ASTTransformer):  # type: ignore[misc]
        """Makes a loop's counter a tensor, as the compiler does: the kernels call its `to`."""

        def visit_For(self, node: ast.For) -> ast.AST:  # noqa: N802
            node.body.insert(0, ast.parse("{0} = {0}".format(ast.unparse(node.target))).body[0])
            return self.generic_visit(node)

    found = {}
    with patch.object(interpreter.FunctionRewriter, "ast_transformer", Loops()):
        for dtype in (torch.float32, torch.float16):
            expected = with_gradients(kernel, dtype, 16, reference=True)
            scaled = [with_gradients(kernel, dtype, 16, scale=scale) for scale in (1.0, 1.1)]
            found[str(dtype).removeprefix("torch.")] = [list(map(error, actual, expected)) for actual in scaled]
    return found


if __name__ == "__main__":
    import triton  # type: ignore[import-not-found]

    triton.runtime.driver.set_active(hopper())
    with patch.multiple(
        torch.cuda,
        device_count=lambda: 1,
        get_device_name=lambda *_: "NVIDIA H100",
        get_device_capability=lambda *_: (9, 0),
    ):
        print(json.dumps((interpreted if os.environ["TRITON_INTERPRET"] == "1" else compiled)(sys.argv[1])))
