#!/usr/bin/env bash
# Runs the main job on CPython's own documentation: fit three models, compare them, export the best, prove it, run it.
set -euo pipefail
experiment="quickstart-$(date +%Y%m%d-%H%M%S)"

show() { printf '\n\033[1m$%s\033[0m\n' "$(printf ' %q' "$@")"; }
step() { show "$@"; "$@"; }

for model in gru attention-nope attention-rope; do
    step seqlab fit --config "lm/$model" --experiment "$experiment" --run_name "$model"
done
step seqlab compare --experiment "$experiment"
best=$(seqlab compare --experiment "$experiment" --quiet | sed -n 1p)
step seqlab export "$best" --out "bundles/$experiment"
prompt="The "
sample=(seqlab generate "bundles/$experiment" --prompt "$prompt" --max-new-tokens 300 --temperature 0.8 --seed 1)
show "${sample[@]}"
printf '%s' "$prompt"
"${sample[@]}"
printf '\nThe command seqlab is in .venv: enter it with\n  . .venv/bin/activate\nand try another block:\n'
printf '  seqlab fit --config lm/gru --model.model.mixer LSTM --experiment %s\n' "$experiment"
