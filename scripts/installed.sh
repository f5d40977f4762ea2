#!/bin/sh
# installed.sh BUILD: installs a built directory into a temporary root and builds
# an example against it in the ways that examples.sh does not try: the static
# library by pkg-config, both libraries by CMake's find_package. All must tell
# the same tale.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
unset LD_LIBRARY_PATH

quietly() { # quietly COMMAND...: its output only if it fails
    "$@" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
}

DESTDIR=$root quietly meson install -C "$build" --no-rebuild
pc=$(find "$root" -name plait.pc)
libs=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$libs/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR

tale() { # tale PROGRAM
    "$1" models/fable-moe-Q8_0.gguf 'cpu*2' 'Once upon a time' >"$root/told"
    [ -s "$root/told" ]
    [ -e "$root/first" ] || cp "$root/told" "$root/first"
    cmp "$root/told" "$root/first"
}

flags=$(pkg-config --static --cflags --libs plait |
    sed 's/-lplait/-Wl,-Bstatic -lplait -Wl,-Bdynamic/')
# shellcheck disable=SC2086
quietly ${CC:-cc} -std=c17 examples/tale.c -o "$root/tale" $flags
tale "$root/tale"
echo "built tale with: pkg-config --static"

if ! command -v cmake >/dev/null; then
    echo "no cmake here: find_package(plait) is not tried"
    exit 0
fi
at=-DCMAKE_PREFIX_PATH=${libs%/lib*}
quietly cmake -S examples -B "$root/cmake" "$at"
quietly cmake --build "$root/cmake"
[ "$(readelf -d "$root/cmake/tale" | grep -c 'NEEDED.*libplait\.so\.0')" = 1 ]
[ "$(readelf -d "$root/cmake/tale-static" | grep -c libplait)" = 0 ]
tale "$root/cmake/tale"
tale "$root/cmake/tale-static"
# A version that may have another API is not found.
mkdir "$root/others"
cat >"$root/others/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(others C)
foreach(version 0.0 0.2 0.10 0.1.9 1 1.0)
  find_package(plait ${version} QUIET)
  if(plait_FOUND)
    message(FATAL_ERROR "found where ${version} was wanted")
  endif()
endforeach()
foreach(version 0 0.1 0.1.0)
  find_package(plait ${version} REQUIRED)
endforeach()
END
quietly cmake -S "$root/others" -B "$root/others/build" "$at"
echo "built tale with: find_package(plait)"
