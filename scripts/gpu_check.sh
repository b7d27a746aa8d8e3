#!/usr/bin/env bash
# Runs the checks that need a CUDA device: training of GPT-2 124M, proofs of bundles, throughput beside the CPU's,
# linear layers in float8 (torchao), and the tests marked `cuda`. A part that cannot run prints `not run` and the
# reason; the last line is `ok`, or the failed parts.
#
# scripts/gpu_check.sh [WHEELS]
#
# WHEELS is a folder of wheels that this machine's python3 lacks; they are installed into build/gpu-check only.
# $SEQLAB_PROGRAMS is a folder with built programs of export/runtime and the libraries that they need; the default is
# the output of `make cpp`. $SEQLAB_BUNDLES is a folder of bundles to prove, made elsewhere by `benchmarks/gpu_proofs.py
# export`; by default they are made here, which takes many minutes.
set -uo pipefail
wheels=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
out=$PWD/build/gpu-check
mkdir -p "$out"
export PYTHONPATH="$out/site:$PWD/platform:$PWD/datamodules:$PWD/export:$PWD/studies${PYTHONPATH:+:$PYTHONPATH}"
failed=()
not_run=0

part() { # NAME MODULES COMMAND...
    local name=$1 modules=$2 reason=$no_device
    printf '\n== %s\n' "$name"
    for module in $modules; do
        [ -n "$reason" ] || python3 -c "import $module" 2>/dev/null || reason="Python has no $module"
    done
    if [ -n "$reason" ]; then
        echo "not run: $reason"
        not_run=$((not_run + 1))
    else
        "${@:3}" || failed+=("$name")
    fi
}

tests() {
    mapfile -t files < <(grep -rl 'mark\.cuda' tests --include='test_*.py')
    python3 -m pytest -q -W default -p no:cacheprovider -m 'cuda and not slow' "${files[@]}"
}

proofs() {
    local bundles=${SEQLAB_BUNDLES:-$out/bundles}
    [ -n "${SEQLAB_BUNDLES:-}" ] || python3 benchmarks/gpu_proofs.py export "$bundles"
    python3 benchmarks/gpu_proofs.py prove "$bundles" "$out/proofs.jsonl"
}

float8() {
    python3 -c '
import torch
from torchao.float8 import convert_to_float8_training
from seqlab.models import DecoderLM
model = DecoderLM(512, 64, d_model=256, num_layers=2).cuda().bfloat16()
read = torch.randint(512, (8, 64), device="cuda")
expected = model(read)[0].float()
wanted = lambda module, name: module.in_features % 16 == module.out_features % 16 == 0
found = convert_to_float8_training(model, module_filter_fn=wanted)(read)[0].float()
found.square().mean().backward()
off = ((found - expected).square().mean() / expected.square().mean()).sqrt().item()
print(f"logits of float8 linear layers are off by {off:.1%}")
assert off < 0.1 and all(weight.grad.isfinite().all() for weight in model.parameters())'
}

if [ -n "$wheels" ]; then
    python3 -m pip install --quiet --no-index --no-deps --upgrade --target "$out/site" "$wheels"/*.whl ||
        failed+=("installing $wheels")
fi
no_device=$(python3 -c '
import torch
print("" if torch.cuda.is_available() else "no CUDA device")' 2>/dev/null) || no_device="Python has no torch"

# CUDA libraries from NVIDIA's wheels, wherever Python finds them: onnxruntime may be installed elsewhere.
libraries=$(python3 -c '
import glob, sys
print("".join(folder + ":" for path in sys.path for folder in glob.glob(path + "/nvidia/*/lib")))')
programs=${SEQLAB_PROGRAMS:-$PWD/build/cpp}
export LD_LIBRARY_PATH="$libraries$programs:${LD_LIBRARY_PATH:-}"
export SEQLAB_RUN="$programs/seqlab-run"
SEQLAB_ORT_LIB=$(python3 -c '
import glob, onnxruntime
print(glob.glob(onnxruntime.__path__[0] + "/capi/libonnxruntime.so*")[0])' 2>/dev/null) && export SEQLAB_ORT_LIB

part "training" "lightning rich" python3 benchmarks/gpu_training.py
part "proofs" "lightning jsonargparse onnxscript onnxruntime" proofs
part "throughput" "onnxscript onnxruntime rich" python3 benchmarks/gpu_throughput.py
part "float8" "torchao" float8
part "tests" "pytest lightning jsonargparse babel onnxscript onnxruntime" tests

printf '\n'
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: $(IFS=,; echo "${failed[*]}")"
    exit 1
fi
echo "ok$( ((not_run == 0)) || echo ", $not_run parts not run")"
