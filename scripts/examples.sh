#!/bin/sh
# examples.sh BUILD: installs a built directory into a temporary root, builds
# the examples against it as a stranger would, by pkg-config, and runs them: by
# the words of UNDER, if that is set ("valgrind -q").
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
under=${UNDER:-}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

DESTDIR=$root meson install -C "$build" --no-rebuild >"$root/log" 2>&1 ||
    { cat "$root/log"; exit 1; }
for file in share/man/man1/plait-run.1 share/zsh/site-functions/_plait \
    share/bash-completion/completions/plait \
    share/fish/vendor_completions.d/plait.fish; do
    [ -n "$(find "$root" -path "*/$file")" ] ||
        { echo "not installed: $file" >&2; exit 1; }
done
pc=$(find "$root" -name plait.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
export LD_LIBRARY_PATH

make_one() { # make_one NAME: one example
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c17 -Wall -Wextra -Werror "examples/$1.c" -o "$root/$1" \
        $(pkg-config --cflags plait) $(pkg-config --libs plait)
}

for example in examples/*.c; do
    name=$(basename "$example" .c)
    make_one "$name"
    echo "built $name with: $(pkg-config --modversion plait)"
done
# shellcheck disable=SC2086
$under "$root/own_graph" 'cpu*2'
# shellcheck disable=SC2086
$under "$root/tale" models/fable-moe-Q8_0.gguf 'cpu*2' 'Once upon a time'
"$(find "$root" -name plait -type f -perm -u+x)" version
