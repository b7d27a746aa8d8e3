"""A GRU layer for training on a CPU, where PyTorch has a fused kernel only for the LSTM.

B batch, T length, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class GRUOverTime(torch.autograd.Function):
    """Equations of `GRU`, step by step, with a hand-written backward pass.

    Everything that does not depend on the previous step is computed for all steps at once: input products, gate
    derivatives and weight gradients. A step is then one product and a few elementwise operations in each pass.
    """

    @staticmethod
    def forward(ctx: Any, from_x: Tensor, h_0: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
        """The states h (T, B, D) after each step.

        Args:
            from_x: (T, B, 3 D), W x + b for r, z and n. An infinite value for z makes the step the identity (padding).
            h_0: (B, D).
            weight_hh, bias_hh: (3 D, D) and (3 D,), of r, z and n.
        """
        width = h_0.shape[1]
        h = from_x.new_empty(len(from_x) + 1, *h_0.shape)  # (T + 1, B, D)
        h[0] = h_0
        from_h, gates = torch.empty_like(from_x), torch.empty_like(from_x)  # (T, B, 3 D) each
        weight = weight_hh.t().contiguous()  # (D, 3 D)
        r, z, _ = gates.chunk(3, dim=-1)  # (T, B, D) each
        both = [part for y in (gates, from_h, from_x) for part in (y[..., : 2 * width], y[..., 2 * width :])]
        steps = zip(*(part.unbind() for part in (h[:-1], h[1:], from_h, r, z, *both)), strict=True)
        for before, after, product, r_t, z_t, rz_t, n_t, rz_of_h, n_of_h, rz_of_x, n_of_x in steps:
            torch.addmm(bias_hh, before, weight, out=product)
            torch.add(rz_of_h, rz_of_x, out=rz_t).sigmoid_()
            torch.addcmul(n_of_x, r_t, n_of_h, out=n_t).tanh_()
            torch.lerp(n_t, before, z_t, out=after)
        ctx.save_for_backward(h, gates, from_h, weight_hh)
        return h[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h, gates, from_h, weight_hh = ctx.saved_tensors
        r, z, n = gates.chunk(3, dim=-1)  # (T, B, D) each
        n_of_h = from_h.chunk(3, dim=-1)[2]  # (T, B, D)
        # d (what each gate takes) / d h', all (T, B, D); of n it is that of W_n x, and r times it of U_n h.
        of_n = (1 - z) * (1 - n * n)
        per_h = torch.stack((of_n * n_of_h * r * (1 - r), (h[:-1] - n) * z * (1 - z), of_n * r), dim=2)  # (T, B, 3, D)
        to_h, to_product = torch.empty_like(n).unsqueeze(2), torch.empty_like(per_h)  # (T, B, 1, D), (T, B, 3, D)
        later = torch.zeros_like(h[0])  # (B, D)
        steps = [part.unbind() for part in (grad, z, per_h, to_h, to_h.squeeze(2), to_product, to_product.flatten(2))]
        for grad_t, z_t, per_h_t, wide, to_h_t, to_gates, flat in reversed([*zip(*steps, strict=True)]):
            torch.add(later, grad_t, out=to_h_t)
            torch.mul(per_h_t, wide, out=to_gates)
            later = torch.addmm(to_h_t * z_t, flat, weight_hh)
        flat = to_product.flatten(2)  # (T, B, 3 D)
        to_x = torch.cat((flat[..., : -n.shape[-1]], to_h.squeeze(2) * of_n), dim=-1)  # (T, B, 3 D)
        # (T, B, 3 D), (B, D), (3 D, D), (3 D,)
        return to_x, later, flat.flatten(0, 1).t() @ h[:-1].flatten(0, 1), flat.sum(dim=(0, 1))
