#!/bin/sh
# deps.sh build|check|test|gate|deb|portable|packages: installs the packages that
# building, checking, testing, .ci/run, `make deb`, `make portable` or the long
# tier's part `packages` needs and this machine lacks. Silent if none is missing.
# Knows apt only; on other systems it names what is missing and stops. Tests go
# without the packages that only they need: they are skipped.
set -u
what=${1:-build}

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

opencl() { # a device of OpenCL, if only the processor
    ls /etc/OpenCL/vendors/*.icd &&
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep libOpenCL.so.1
}

mpi() { pkg-config --exists ompi-c && has mpirun.openmpi; }

missing_of() {
    missing=
    if [ "$1" = test ]; then
        # the module is built when the build is configured again
        need "libopenmpi-dev openmpi-bin" mpi
        need "pocl-opencl-icd ocl-icd-libopencl1" opencl
        need python3-venv python3 -c 'import ensurepip'
        if [ "${PLAIT_TIER:-}" = long ]; then # some 100 MB
            need chromium has chromium
        fi
        return
    fi
    if [ "$1" = packages ]; then
        need debootstrap has debootstrap
        need lintian has lintian
        need python3 has python3
        need systemd has systemd-analyze
        return
    fi
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
    need nettle-dev pkg-config --exists nettle
    need liblzma-dev pkg-config --exists liblzma
    need libmicrohttpd-dev pkg-config --exists libmicrohttpd
    need libcurl4-openssl-dev pkg-config --exists libcurl
    need libgnutls28-dev pkg-config --exists gnutls
    need libedit-dev pkg-config --exists libedit
    if [ "$1" = deb ]; then
        need build-essential dpkg-query -s build-essential
        need debhelper has dh
        need libopenmpi-dev pkg-config --exists ompi-c
        need libmpich-dev pkg-config --exists mpich
        need python3 has python3
        return
    fi
    need libcmocka-dev pkg-config --exists cmocka
    need openssl has openssl
    if [ "$1" = portable ] || [ "$1" = gate ]; then
        need patchelf has patchelf
    fi
    if [ "$1" = check ] || [ "$1" = gate ]; then
        need git has git
        need python3 has python3
        need clang has clang
        need clang-format has clang-format
    fi
    if [ "$1" = gate ]; then
        need ccache has ccache
        need cmake has cmake
        need "libopenmpi-dev openmpi-bin" mpi
        major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
        need "libclang-rt-${major:-14}-dev" fuzzes
        if [ "${PLAIT_TIER:-}" = long ]; then
            need valgrind has valgrind
            need "libmpich-dev mpich" pkg-config --exists mpich
        fi
    fi
}

missing_of "$what"
[ -z "$missing" ] && exit 0

give_up() { # give_up MESSAGE...
    if [ "$what" = test ]; then
        echo "Not installed, so tests that need it are skipped:$missing" >&2
        exit 0
    fi
    printf '%s\n' "$@" >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1; then
    give_up "Missing:$missing (names of Debian packages)." \
        "This is no Debian system: install what corresponds, run again."
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        give_up "Missing:$missing. Run as root: apt-get install$missing"
    fi
    sudo=sudo
    [ "$what" = test ] && sudo="sudo -n"
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
    [ "$what$try" = test2 ] && break
    [ "$try" = 1 ] || sleep 5
    apt update
done
missing_of "$what"
[ "$missing" = " ccache" ] && missing= # it only saves time
if [ -n "$missing" ]; then
    [ "$what" = test ] || tail -n 20 "$log" >&2
    give_up "apt-get could not install:$missing"
fi
