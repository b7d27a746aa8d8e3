#!/usr/bin/env bash
# Builds a release into build/release, and tries each part in an empty environment: `make release`.
# A gallery that is there is taken as it is.
set -euo pipefail

out=build/release
[ ! -e "$out" ] || { echo "$out exists; move it away to build a release" >&2; exit 2; }
make --silent web cpp
[ -f build/gallery/index.html ] || make --silent gallery
make --silent docs
version=$(.venv/bin/seqlab --version)
python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
.venv/bin/python -m hatchling build -t sdist -t wheel -d "$PWD/$out"
cpack --config build/cpp/CPackConfig.cmake -B "$PWD/$out"
rm -r "$out/_CPack_Packages"
for part in site gallery; do
  tar -czf "$out/seqlab-$version-$part.tar.gz" -C build "$part"
done
cp examples/deploy/Containerfile "$out"
(cd "$out" && sha256sum -- * > SHA256SUMS)

try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
cp "$out"/* "$try"
cp constraints.txt "$try/constraints.txt"
cd "$try"
sha256sum --check --quiet SHA256SUMS
export PATH=/usr/bin:/bin
unset PYTHONPATH

"$python" -m venv sdist
sdist/bin/pip install --quiet --disable-pip-version-check --no-deps "seqlab-$version.tar.gz"
[ "$(sdist/bin/seqlab --version)" = "$version" ]

"$python" -m venv wheel
wheel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0 seqlab-*.whl
wheel/bin/seqlab fit --config lm/gru --trainer.max_steps 2 --trainer.limit_val_batches 1 --run_name tried
wheel/bin/seqlab compare

tar -xzf "seqlab-$version-site.tar.gz"
tar -xzf "seqlab-$version-gallery.tar.gz"
[ -f site/index.html ] && [ -f site/live/index.html ]
mkdir runtime
tar -xzf seqlab_runtime-*.tar.gz -C runtime --strip-components=1
SEQLAB_ORT_LIB=$(find wheel -name 'libonnxruntime.so.*' | head -n 1)
export SEQLAB_ORT_LIB
for bundle in gallery/bundles/*; do
  runtime/bin/seqlab-run verify "$bundle" > "$(basename "$bundle").txt" || { cat "$(basename "$bundle").txt"; exit 1; }
done
echo "Release $version: $(find gallery/bundles -mindepth 1 -maxdepth 1 | wc -l) bundles proven again, wheel, sdist and runtime tried · $OLDPWD/$out"
