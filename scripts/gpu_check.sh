#!/usr/bin/env bash
# Measures what needs a CUDA device: training of GPT-2 124M, proofs, decoding, and the tests marked `cuda`. The most
# valuable come first, and a part is stopped after its time. A second run goes on where the first was cut off: what
# was measured on such a device is not repeated. A part that cannot run prints `not run` and the reason; the last line is
# `ok`, or the parts that are not complete. `benchmarks/gpu_results.py` prints the results as tables.
#
# scripts/gpu_check.sh [WHEELS]
#
# WHEELS is a folder of wheels that this machine's python3 lacks; they are installed into build/gpu-check only.
# $SEQLAB_RESULTS is the file of results; the default is build/gpu-check/results.jsonl.
# $SEQLAB_PROGRAMS is a folder with built programs of export/runtime and the libraries that they need; the default is
# the output of `make cpp`. $SEQLAB_BUNDLES is a folder of bundles to prove, made elsewhere by `benchmarks/gpu_proofs.py
# --export`; those that are missing are made here, which takes many minutes.
# $SEQLAB_REHEARSE=1 rehearses every part on the CPU, at toy size, with its own file of results.
set -uo pipefail
wheels=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
out=$PWD/build/gpu-check
mkdir -p "$out"
rehearse=${SEQLAB_REHEARSE:+--rehearse}
results=${SEQLAB_RESULTS:-$out/${rehearse:+rehearsed-}results.jsonl}
export PYTHONPATH="$out/site:$PWD/platform:$PWD/datamodules:$PWD/export:$PWD/studies${PYTHONPATH:+:$PYTHONPATH}"
failed=()
not_run=0

part() { # NAME SECONDS MODULES OPTIONS...
    local name=$1 seconds=$2 modules=$3 reason=$no_device
    printf '\n== %s\n' "$name"
    for module in $modules; do
        [ -n "$reason" ] || python3 -c "import $module" 2>/dev/null || reason="Python has no $module"
    done
    if [ -n "$reason" ]; then
        echo "not run: $reason"
        not_run=$((not_run + 1))
        return
    fi
    [ -z "$rehearse" ] || seconds=$((10 * seconds)) # of a machine that does other work
    timeout --kill-after 5 "$seconds" python3 "benchmarks/gpu_$name.py" --results "$results" $rehearse "${@:4}"
    local code=$?
    ((code != 124 && code != 137)) || echo "cut off after $seconds s"
    ((code == 0)) || failed+=("$name")
}

if [ -n "$wheels" ]; then
    python3 -m pip install --quiet --no-index --no-deps --upgrade --target "$out/site" "$wheels"/*.whl ||
        failed+=("installing $wheels")
fi
no_device=$(python3 -c '
import sys, torch
print("" if sys.argv[1:] or torch.cuda.is_available() else "no CUDA device")' $rehearse 2>/dev/null) ||
    no_device="Python has no torch"

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

part training 200 "lightning"
part proofs 150 "lightning jsonargparse onnxscript onnxruntime" --bundles "${SEQLAB_BUNDLES:-$out/bundles}"
part decoding 150 "onnxscript onnxruntime rich"
part tests 100 "pytest hypothesis lightning jsonargparse babel onnxscript onnxruntime"

printf '\n'
if [ ${#failed[@]} -gt 0 ]; then
    echo "not complete: $(IFS=,; echo "${failed[*]}")"
    exit 1
fi
echo "ok$( ((not_run == 0)) || echo ", $not_run parts not run")"
