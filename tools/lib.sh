# Shell functions shared by quickstart, check and the tools. Source it; it changes no state.

qn_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
qn_cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern

qn_say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
qn_die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Run a command as root: directly when we are root, else through sudo.
qn_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        qn_die "need root for: $* (no sudo found; run as root or install these packages yourself)"
    fi
}

# qn_need_packages PKG…: install the Debian or Ubuntu packages that are missing.
qn_need_packages() {
    local missing=() p
    command -v apt-get >/dev/null ||
        qn_die "no apt-get: install the equivalents of these packages by hand: $*"
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
    done
    [ ${#missing[@]} = 0 ] && return 0
    qn_say "installing ${missing[*]}"
    qn_as_root apt-get update -qq
    qn_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# What every build needs.
qn_build_packages=(gcc libc6-dev cmake ninja-build pkg-config libevent-dev libjansson-dev
    libpcre2-dev libutf8proc-dev libhwloc-dev libcmocka-dev)

# qn_build PRESET [TARGET…]: configure and build; the log is shown only when something fails.
qn_build() {
    local preset=$1 log
    shift
    log=$(mktemp)
    if ! { cmake --preset "$preset" && cmake --build --preset "$preset" ${1:+--target "$@"}; } \
        >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        qn_die "the $preset build failed"
    fi
    rm -f "$log"
}
