#!/usr/bin/env bash
# Unpacks the dependencies of the C++ runtime from Debian's packages into a folder. Needs no root and installs nothing.
#
# usage: scripts/fetch_cpp_dependencies.sh FOLDER
set -euo pipefail
folder=${1:?usage: fetch_cpp_dependencies.sh FOLDER}
# The first Debian that packages onnxruntime. Only its headers are used: its library needs a newer glibc.
headers_suite=trixie
# A suite whose cpp-httplib has no known holes. Only the header of its source is used: Debian's package has a library.
http_suite=trixie-backports
packages=(libcli11-dev libgtest-dev libminizip-dev libonig-dev libonig5 libsentencepiece-dev libsentencepiece0
    libssl-dev libutf8proc-dev nlohmann-json3-dev zlib1g-dev)

fail() {
    echo "cannot fetch the C++ dependencies: $1; install ${packages[*]} and give onnxruntime's headers with -DORT_ROOT" >&2
    exit 2
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "this system has no apt-get and dpkg"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
listed=$(grep -lsE "(^Suites:| )[[:space:]]*${suite:-none}\b" /etc/apt/sources.list /etc/apt/sources.list.d/* || true)
[[ -n $listed ]] || fail "no apt source of the suite '${suite}' is configured"

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{sources,lists/partial,cache,debs,root}
for file in $listed; do
    name=$(basename "$file")
    cp "$file" "$work/sources/own-$name"
    # A security archive's suite is named `bookworm-security`, and has no onnxruntime.
    sed -E "s/\b$suite(-[a-z]+)?\b/$headers_suite/g" "$file" |
        awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' >"$work/sources/newer-$name"
done
for file in $listed; do
    sed -E "s/\b$suite(-[a-z]+)?\b/$http_suite/g; s/^(Types:[[:space:]]*|)deb\b/\1deb-src/" "$file" |
        awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' >"$work/sources/source-$(basename "$file")"
done
options=(-q -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/sources"
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
apt-get update "${options[@]}" >"$work/log" 2>&1 || fail "apt-get update said: $(tail -n 1 "$work/log")"
(cd "$work/debs" && apt-get download "${options[@]}" "${packages[@]/%//$suite}" "libonnxruntime-dev/$headers_suite") \
    >"$work/log" 2>&1 || fail "apt-get download said: $(tail -n 1 "$work/log")"
(cd "$work/cache" && apt-get source --download-only --tar-only "${options[@]}" cpp-httplib) >"$work/log" 2>&1 ||
    fail "apt-get source said: $(tail -n 1 "$work/log")"
for package in "$work"/debs/*.deb; do
    dpkg -x "$package" "$work/root"
done
tar --extract --file "$work"/cache/cpp-httplib_*.orig.tar.xz --directory "$work/root/usr/include" --strip-components 1 \
    --wildcards '*/httplib.h'
rm -rf "$folder"
mv "$work/root" "$folder"
