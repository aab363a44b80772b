#!/usr/bin/env bash
# Builds the files of a release in a folder (default: dist): the program in an archive, the wheel, a bill of materials
# (CycloneDX), and their checksums. Prints the files. Tests the wheel in a fresh environment.
#
# Needs Rust, python3 with pip and venv, and the network for crates and wheels. docs/releasing.md describes reproducibility.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'release: %s\n' "$*" >&2; }

[[ -z $(git status --porcelain) ]] || say "WARNING: uncommitted changes are built in"
[[ -z $(git ls-files changes/unreleased) ]] || say "WARNING: CHANGELOG.md lacks the changes in changes/unreleased"
version=$(cargo metadata --no-deps --format-version 1 --locked |
    python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "sinew"))')
host=$(rustc -vV | sed -n 's/^host: //p')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# The program contains no paths of this machine.
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/sinew --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# Merge identical functions. Rust links this target with lld; linkers of other targets may not support the option.
[[ $host != x86_64-unknown-linux-gnu ]] || RUSTFLAGS+=" -C link-arg=-Wl,--icf=all"
target=$(cargo metadata --no-deps --format-version 1 --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')

say "building $version for $host"
cargo build --release --locked --package sinew --bin sinew
bash deploy/wheel/build.sh "$out" >/dev/null

say "listing what is built in"
cyclonedx=0.5.9
tools=${XDG_CACHE_HOME:-$HOME/.cache}/sinew/cargo-cyclonedx-$cyclonedx
if [[ ! -x $tools/bin/cargo-cyclonedx ]]; then
    RUSTFLAGS='' CARGO_TARGET_DIR=$tools/target cargo install cargo-cyclonedx --version "$cyclonedx" --locked --debug --root "$tools"
    rm -rf "$tools/target"
fi
# The tool writes next to each manifest, so it gets a copy.
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory="$work"
"$tools/bin/cargo-cyclonedx" cyclonedx --quiet --manifest-path "$work/crates/sinew/Cargo.toml" --format json --spec-version 1.5 \
    --target "$host" --override-filename sinew
cp "$work/crates/sinew/sinew.json" "$out/sinew-$version.cdx.json"

folder=sinew-$version-$host
mkdir "$work/$folder"
cp "$target/release/sinew" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$work/$folder/"
tar --create --directory="$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "$folder" |
    gzip --no-name >"$out/$folder.tar.gz"

cd "$out"
rm -f ./*.sha256
sha256sum "$folder.tar.gz" "sinew-$version.cdx.json" sinew-*.whl >SHA256SUMS
say "made in $out:"
cat SHA256SUMS
