"""Verb for planning: estimate."""

from __future__ import annotations

import argparse

from seqlab.cli.verb import argument, decimal, verb, whole_number

AGAIN = "with --checkpoint_activations"


@verb(
    "estimate the time, memory and cost of a training run without allocating anything",
    argument("--config", required=True, metavar="NAME|PATH", help="config of a language model"),
    argument("--tokens", type=decimal, required=True, metavar="N", help="number of training tokens"),
    argument("--device", default="H100", metavar="NAME", help="device type; default: H100"),
    argument("--devices", type=whole_number, default=1, metavar="N", help="number of devices; default: 1"),
    argument(
        "--mfu",
        type=decimal,
        default=0.4,
        metavar="X",
        help="model FLOPs utilisation, a share of the dense bf16 peak; default: 0.4",
    ),
    argument("--price", type=decimal, metavar="P", help="price of one device for one hour"),
    argument("--vocab-size", type=whole_number, default=50257, metavar="V", help="vocabulary size; default: 50257"),
)
def estimate(options: argparse.Namespace) -> int:
    from seqlab.budgets.devices import DEVICES
    from seqlab.budgets.estimate import estimate

    if options.price is not None and options.price < 0:
        raise ValueError(f"--price must be at least 0, got {options.price:g}")
    names = ("device", "devices", "mfu", "tokens", "vocab_size")
    found = estimate(options.config, **{name: getattr(options, name) for name in names})
    print(f"{found.num_params:,} parameters, {found.num_flops:.4g} FLOPs of training a token")
    print(f"{found.days:.3g} days for {options.tokens:.4g} tokens on {options.devices} {options.device}")
    if options.price is not None:
        print(f"cost {found.days * 24 * options.devices * options.price:,.0f}")
    memory, kept = DEVICES[options.device].memory, found.activations
    if kept is not None:
        each, again = (f"{some.fixed / 1e9:.3g} GB and {some.each / 1e9:.3g} a sequence" for some in kept[:2])
        print(f"activations of {found.seq_len:,} tokens: {each}; {AGAIN} {again}")
    for strategy, shared_by in (("ddp", 1), ("fsdp2", options.devices)):
        held = found.memory / shared_by
        said = "fits" if held < memory else "does not fit"
        if kept is not None and held < memory:
            batch, most = (kept.largest_batch(memory - held, forget=forget) for forget in (False, True))
            said += f", with {batch:,} sequences at once, {most:,} {AGAIN}"
        print(f"{strategy}: {held / 1e9:,.1f} GB of {memory / 1e9:g} a device, {said}")
    return 0


VERBS = (estimate,)
