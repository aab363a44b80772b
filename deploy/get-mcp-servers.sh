#!/usr/bin/env bash
# Prints the folder of real MCP servers for tests, and installs them if they are missing.
#
# Two from npm (@modelcontextprotocol/server-everything and server-filesystem), and one built with the PyPI SDK (mcp). Searches
# $SINEW_MCP_SERVERS, then ${XDG_CACHE_HOME:-~/.cache}/sinew/. Needs no root and writes nothing else; scripts of packages
# are not run. Only the folder goes to stdout; its node_modules/.bin/ and python/bin/ contain the programs.
set -euo pipefail

npm_version=2026.8.31
python_version=2.3.0

say() { printf 'get-mcp-servers: %s\n' "$*" >&2; }
without() {
    say "there are no MCP servers: $*"
    exit 1
}

if [[ -n ${SINEW_MCP_SERVERS:-} ]]; then
    [[ -d $SINEW_MCP_SERVERS ]] || without "SINEW_MCP_SERVERS ($SINEW_MCP_SERVERS) is not a folder"
    printf '%s\n' "$SINEW_MCP_SERVERS"
    exit
fi
cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set}/.cache}/sinew
folder=$cache/mcp-servers-$npm_version-$python_version
if [[ -f $folder/complete ]]; then
    printf '%s\n' "$folder"
    exit
fi
command -v node >/dev/null && command -v npm >/dev/null || without "they need node and npm"
python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    without "they need python3 of 3.10 or newer, with pip and venv"
mkdir -p "$folder"
say "fetching servers of npm and PyPI, 60 MB"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error \
    "@modelcontextprotocol/server-everything@$npm_version" "@modelcontextprotocol/server-filesystem@$npm_version" \
    >&2 || without "packages of npm could not be fetched"
python3 -m venv "$folder/python" >&2 || without "python3 -m venv failed"
"$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary=:all: \
    "mcp==$python_version" >&2 || without "packages of PyPI could not be fetched"
touch "$folder/complete"
printf '%s\n' "$folder"
