#!/bin/sh
# Builds the tests for AArch64 and runs those of the kernels, and of the bits of
# whole models, under qemu-user.
#
#   tests/long/arm64.sh [BUILD]        BUILD: where to; default build-arm64
#
# Needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static and
# a mirror: the libraries that plait needs come from there, into BUILD/root, with
# lists of packages of their own, so that the system stays as it is. Without one
# of these the status is 77.
#
# One emulated processor has all features, and the tests go through the kernel
# sets by themselves. Two that lack some see that no instruction strayed into
# what they run: the Cortex-A72 has NEON alone, the Neoverse N1 DotProd too.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=${1:-$here/build-arm64}
root=$build/root
lib=$root/usr/lib/aarch64-linux-gnu

for tool in aarch64-linux-gnu-gcc qemu-aarch64-static apt-get dpkg; do
    command -v "$tool" >/dev/null || { echo "$tool is missing"; exit 77; }
done
[ -d /usr/aarch64-linux-gnu/include ] ||
    { echo "libc6-dev-arm64-cross is missing"; exit 77; }

# Debian's libraries for AArch64, unpacked and not installed.
fetch() {
    rm -rf "$root"
    mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial" || return 1
    : >"$root/apt/status"
    # The mirror and release that this system's own packages come from.
    apt-cache policy | sed -n \
        's/^ *[0-9]* \([a-z+]*:[^ ]*\) \([a-z]*\)\/main .*/deb [arch=arm64] \1 \2 main/p' |
        head -n 1 >"$root/apt/sources.list"
    cat >"$root/apt/conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$root/apt";
Dir::State::status "$root/apt/status";
Dir::Cache "$root/apt";
Dir::Etc::sourcelist "$root/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
CONF
    (
        cd "$root" && export APT_CONFIG="$root/apt/conf" &&
            apt-get -qq update && apt-get -qq download \
            libpcre2-8-0 libpcre2-dev libjansson4 libjansson-dev libudev1 \
            libcap2 libhwloc15 libhwloc-dev libcmocka0 libcmocka-dev \
            libedit2 libedit-dev libmicrohttpd12 libmicrohttpd-dev \
            libgnutls30 libgnutls28-dev libnettle8 libhogweed6 nettle-dev \
            liblzma5 liblzma-dev \
            libgmp10 libidn2-0 libidn2-dev libunistring2 libtasn1-6 \
            libtasn1-6-dev libp11-kit0 libp11-kit-dev libffi8 \
            libcurl4 libcurl4-openssl-dev libssl3 zlib1g libzstd1 \
            libbrotli1 libnghttp2-14 libpsl5 librtmp1 libssh2-1 \
            libldap-2.5-0 libsasl2-2 libgssapi-krb5-2 libkrb5-3 \
            libk5crypto3 libkrb5support0 libkeyutils1 libcom-err2
    ) >&2 || return 1
    for package in "$root"/*.deb; do
        dpkg -x "$package" "$root" || return 1
    done
    touch "$root/complete2"
}
[ -e "$root/complete2" ] || fetch ||
    { echo "Debian's libraries for AArch64 cannot be had"; exit 77; }

export PKG_CONFIG_LIBDIR="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
[ -e "$build/build.ninja" ] ||
    meson setup "$build" "$here" \
        --cross-file "$here/scripts/cross/aarch64.ini" \
        -Dc_args="-isystem$root/usr/include/aarch64-linux-gnu" \
        -Dc_link_args="-Wl,-rpath-link,$lib:$root/lib/aarch64-linux-gnu" ||
    exit 1
ninja -C "$build" plait-test || exit 1

tests() { # tests PROCESSOR PART...
    processor=$1
    shift
    echo "== $processor"
    qemu-aarch64-static -cpu "$processor" -L /usr/aarch64-linux-gnu \
        -E LD_LIBRARY_PATH="$lib:$root/lib/aarch64-linux-gnu" \
        "$build/plait-test" -j 1 "$@"
}
unset PLAIT_TIER # an emulator takes long enough for the short one
tests max test_cpu_attention test_cpu_kernel_sets test_cpu_matmul \
    test_cpu_ops test_cpu_recurrent test_quant_ || exit 1
# whole models: the sums are those of x86-64
PLAIT_REFS=$here/tests/refs
export PLAIT_REFS
tests max bits_do_not_depend_on_the_instruction_set logits_keep_their_sums ||
    exit 1
tests neoverse-n1 test_cpu_kernel_sets test_cpu_matmul test_cpu_ops || exit 1
tests cortex-a72 test_cpu_kernel_sets test_cpu_matmul test_cpu_ops || exit 1
