#!/usr/bin/env bash
# Runs the tests in which rounding decides as other x86 processors would compute them: with the vector instructions of
# each, MKL's code for AMD and for Intel, 1 and 2 threads, and three seeds. Instructions that this processor lacks are
# skipped with a note.
#
# scripts/processors.sh          every combination over all of these tests: hours
# scripts/processors.sh today    one combination, another every day, over a few of these tests: a minute
set -uo pipefail
cd "$(dirname "$0")/.."
today=${1:-}
out=$PWD/build/processors
mkdir -p "$out"

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "not run: only on Linux and x86 does one processor compute as others do"
    exit
fi

# MKL selects its code by this function.
printf 'int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n' |
    cc -shared -fPIC -x c -o "$out/intel.so" - || exit

combinations=()
for vectors in "default COMPATIBLE SSE41 sse4_1" "avx2 AVX2 AVX2 avx2" "avx512 AVX512 AVX512_CORE avx512f"; do
    read -r aten mkl onednn flag <<<"$vectors"
    if ! grep -qw "$flag" /proc/cpuinfo; then
        echo "not run: this processor has no $flag"
        continue
    fi
    for maker in "" "LD_PRELOAD=$out/intel.so"; do
        for threads in 1 2; do
            for seed in 0 1 2; do
                combinations+=("ATEN_CPU_CAPABILITY=$aten MKL_CBWR=$mkl ONEDNN_MAX_CPU_ISA=$onednn $maker \
SEQLAB_TEST_THREADS=$threads SEQLAB_TEST_SEED=$seed")
            done
        done
    done
done

tests=(tests/contracts tests/golden tests/export)
if [ "$today" = today ]; then
    combinations=("${combinations[$(($(date +%s) / 86400 % ${#combinations[@]}))]}")
    tests=(tests/contracts/test_decoder_laws.py tests/golden tests/export/test_correct_models.py)
fi

# Idle threads sleep: a spinning thread would take a core from the other process.
export OMP_WAIT_POLICY=PASSIVE

failed=()
for combination in "${combinations[@]}"; do
    printf '\n== %s\n' "$combination"
    # shellcheck disable=SC2086  # several variables
    env $combination .venv/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow" "${tests[@]}" ||
        failed+=("$combination")
done

if [ ${#failed[@]} != 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo ok
