#!/usr/bin/env bash
# Build the sysroot that the arm64 preset compiles and runs against, from the Arm packages of this
# machine's own distribution (Debian or Ubuntu). Nothing is installed: a private apt state under the
# user's cache directory resolves, downloads and verifies the packages, and they are unpacked beside
# it. Safe to run again; a complete sysroot is only verified.
#   tools/arm64_sysroot.sh [--print | --force]
# --print shows where it is, --force builds it anew. QN_ARM64_MIRROR overrides the archive's URL.
# Needs gcc-aarch64-linux-gnu (tested at the end) and, to run programs, qemu-user.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh

sysroot=$qn_cache/sysroot-arm64
packages=(libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev libhwloc-dev libevent-dev
    libcmocka-dev)
libraries=(jansson libpcre2-8 libutf8proc hwloc libevent libevent_pthreads cmocka)

case "${1:-}" in
--print)
    echo "$sysroot"
    exit 0
    ;;
--force) rm -rf "$sysroot" ;;
'') ;;
*) qn_die "unknown argument \"$1\"; expected --print, --force or nothing" ;;
esac

# pkg-config as cmake/arm64.cmake sets it up: nothing of the build machine is visible.
cross_pkg_config() {
    env PKG_CONFIG_SYSROOT_DIR="$1" PKG_CONFIG_PATH= \
        PKG_CONFIG_LIBDIR="$1/usr/lib/aarch64-linux-gnu/pkgconfig:$1/usr/share/pkgconfig" \
        pkg-config "${@:2}"
}

# Compile, link against every library, and run the result when qemu-user is there.
verify() {
    local root=$1 dir rc=0
    dir=$(mktemp -d)
    cat >"$dir/all.c" <<'C'
#define PCRE2_CODE_UNIT_WIDTH 8
#include <event2/event.h>
#include <event2/thread.h>
#include <hwloc.h>
#include <jansson.h>
#include <pcre2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <utf8proc.h>
int main(void)
{
    char pcre[64];
    print_message("cmocka\n");
    return evthread_use_pthreads() != 0 || pcre2_config(PCRE2_CONFIG_VERSION, pcre) <= 0 ||
           printf("%s %s %s %s %x\n", jansson_version_str(), pcre, utf8proc_version(),
                  event_get_version(), hwloc_get_api_version()) <= 0;
}
C
    # shellcheck disable=SC2046 # flags are words
    aarch64-linux-gnu-gcc --sysroot="$root" "$dir/all.c" -o "$dir/all" \
        $(cross_pkg_config "$root" --cflags --libs "${libraries[@]}") -lpthread -lm || rc=1
    if [ $rc = 0 ] && command -v qemu-aarch64 >/dev/null; then
        qemu-aarch64 -L "$root" "$dir/all" >/dev/null || rc=1
    fi
    rm -rf "$dir"
    return $rc
}

command -v aarch64-linux-gnu-gcc >/dev/null ||
    qn_die "no aarch64-linux-gnu-gcc: install the package gcc-aarch64-linux-gnu"
if [ -e "$sysroot/complete" ]; then
    verify "$sysroot" || qn_die "the sysroot $sysroot does not work; run tools/arm64_sysroot.sh --force"
    qn_say "arm64 sysroot: $sysroot (complete)"
    exit 0
fi

. /etc/os-release
case "$ID" in
debian)
    mirror=${QN_ARM64_MIRROR:-http://deb.debian.org/debian}
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    components=main
    ;;
ubuntu)
    mirror=${QN_ARM64_MIRROR:-http://ports.ubuntu.com/ubuntu-ports}
    keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    components="main universe"
    ;;
*) qn_die "distribution \"$ID\": expected debian or ubuntu" ;;
esac
[ -r "$keyring" ] || qn_die "no keyring $keyring: install the package $ID-keyring"

work=$qn_cache/sysroot-arm64.new
rm -rf "$work"
mkdir -p "$work"/apt/{etc/apt.conf.d,etc/preferences.d,lists/partial,archives/partial} "$work/root/usr/lib"
trap 'rm -rf "$work"' EXIT
apt=$work/apt
: >"$apt/status"
echo "deb [arch=arm64 signed-by=$keyring] $mirror $VERSION_CODENAME $components" >"$apt/sources.list"
cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
Dir::Etc "$apt/etc";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
END
export APT_CONFIG=$apt/apt.conf
qn_say "resolving Arm packages from $mirror $VERSION_CODENAME"
apt-get update -qq
apt-get install -qq -y --download-only "${packages[@]}" >"$apt/log" 2>&1 ||
    { tail -n 20 "$apt/log" >&2; qn_die "could not download the Arm packages"; }

# One library directory, as on a running system: /lib is /usr/lib.
ln -s usr/lib "$work/root/lib"
for deb in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" |
        tar -x -C "$work/root" --keep-directory-symlink --no-same-owner \
            --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
done
# Absolute links would lead out of the sysroot.
find "$work/root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$work/root$(readlink "$link")")" "$link"
done
verify "$work/root" || qn_die "the new sysroot does not work"
touch "$work/root/complete"
rm -rf "$sysroot"
mv "$work/root" "$sysroot"
qn_say "arm64 sysroot: $sysroot ($(du -sh "$sysroot" | cut -f1))"
