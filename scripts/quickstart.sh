#!/usr/bin/env bash
# The main job on CPython's own documentation: fit three models, compare them, export the best, prove it, run it.
set -euo pipefail
experiment="quickstart-$(date +%Y%m%d-%H%M%S)"

step() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

for model in gru attention-nope attention-rope; do
    step seqlab fit --config "lm/$model" --experiment "$experiment" --run_name "$model"
done
step seqlab compare --experiment "$experiment"
best=$(seqlab compare --experiment "$experiment" --quiet | sed -n 1p)
step seqlab export "$best" --out "bundles/$experiment"
step seqlab generate "bundles/$experiment" --prompt "The " --max-new-tokens 300 --temperature 0.8 --seed 1
