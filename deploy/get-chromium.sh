#!/usr/bin/env bash
# Prints two lines for the browser tests of the console: the path of a Chromium, and of the chromedriver of its version.
#
# Searches $SINEW_CHROMIUM and $SINEW_CHROMEDRIVER, then PATH. If apt-get is available and permitted, it installs the packages
# chromium and chromium-driver of the system. Only the paths go to stdout.
set -euo pipefail

say() { printf 'get-chromium: %s\n' "$*" >&2; }

# Checks that both programs respond and have the same major version.
usable() {
    local browser driver
    browser=$("$1" --version 2>/dev/null </dev/null) || return 1
    driver=$("$2" --version 2>/dev/null </dev/null) || return 1
    [[ $browser =~ ([0-9]+)\.[0-9]+\.[0-9]+ ]] || return 1
    browser=${BASH_REMATCH[1]}
    [[ $driver =~ ([0-9]+)\.[0-9]+\.[0-9]+ ]] || return 1
    [[ $browser == "${BASH_REMATCH[1]}" ]]
}

# Prints the first pair that works.
find_pair() {
    local browser driver
    driver=${SINEW_CHROMEDRIVER:-$(command -v chromedriver)} || return 1
    for browser in "${SINEW_CHROMIUM:-}" chromium chromium-browser google-chrome; do
        [[ -n $browser ]] && browser=$(command -v "$browser") || continue
        if usable "$browser" "$driver"; then
            printf '%s\n%s\n' "$browser" "$driver"
            return
        fi
    done
    return 1
}

find_pair && exit
if [[ -n ${SINEW_CHROMIUM:-}${SINEW_CHROMEDRIVER:-} ]]; then
    # An explicitly configured program is used without a search.
    say "SINEW_CHROMIUM and SINEW_CHROMEDRIVER do not name a Chromium and a chromedriver of one version"
    exit 1
fi
command -v apt-get >/dev/null || { say "install Chromium and chromedriver, or name them by SINEW_CHROMIUM and SINEW_CHROMEDRIVER"; exit 1; }
as_root=()
if ((EUID != 0)); then
    sudo -n true 2>/dev/null || { say "needs root for: apt-get install chromium chromium-driver"; exit 1; }
    as_root=(sudo -n)
fi
# Several test programs may run this concurrently; the second finds what the first installed.
exec 9>"${TMPDIR:-/tmp}/sinew-get-chromium.lock"
flock 9
find_pair && exit
say "installing the packages chromium and chromium-driver"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update --quiet >&2
"${as_root[@]}" apt-get install --yes --quiet --no-install-recommends chromium chromium-driver >&2
find_pair || { say "what was installed does not work on this machine"; exit 1; }
