#!/bin/sh
# deps.sh build|check: installs the packages that building, or checking, needs
# and this machine lacks. Silent when nothing is missing. Knows apt only; on
# other systems it names what is missing and stops.
set -u

missing=
need() { # need PACKAGE COMMAND...: the package is missing if COMMAND fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has() { command -v "$1"; }
compiles() { # compiles COMPILER FLAG...
    tmp=$(mktemp -d) || return 1
    printf '#include <stdio.h>\nint main(void) { return 0; }\n' >"$tmp/a.c"
    "$@" "$tmp/a.c" -o "$tmp/a.out"
    rc=$?
    rm -rf "$tmp"
    return $rc
}
fuzzes() {
    tmp=$(mktemp -d) || return 1
    printf '%s\n' 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n);' \
        'int LLVMFuzzerTestOneInput(const char *p, unsigned long n)' \
        '{ return p == 0 && n > 0; }' >"$tmp/a.c"
    clang -fsanitize=fuzzer,address "$tmp/a.c" -o "$tmp/a.out"
    rc=$?
    rm -rf "$tmp"
    return $rc
}

missing_of() {
    missing=
    need meson has meson
    need ninja-build has ninja
    if [ -z "${CC:-}" ]; then
        need gcc has gcc
    fi
    need libc6-dev compiles "${CC:-gcc}"
    need pkg-config has pkg-config
    need libpcre2-dev pkg-config --exists libpcre2-8
    need libjansson-dev pkg-config --exists jansson
    need libhwloc-dev pkg-config --exists hwloc
    need libedit-dev pkg-config --exists libedit
    need libcmocka-dev pkg-config --exists cmocka
    if [ "$1" = check ]; then
        need git has git
        need python3 has python3
        need clang has clang
        need clang-format has clang-format
        major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
        need "libclang-rt-${major:-14}-dev" fuzzes
    fi
}

missing_of "${1:-build}"
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing:$missing (names of Debian packages)." >&2
    echo "This is no Debian system: install what corresponds, run again." >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "Missing:$missing. Run as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi

echo "installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq "$@" \
        </dev/null >>"$log" 2>&1
}
for try in 1 2 3; do
    # The package lists may be there already; update only if they are not.
    # shellcheck disable=SC2086
    apt install -y --no-install-recommends $missing && break
    [ "$try" = 1 ] || sleep 5
    apt update
done
missing_of "${1:-build}"
if [ -n "$missing" ]; then
    tail -n 20 "$log" >&2
    echo "apt-get could not install:$missing" >&2
    exit 1
fi
