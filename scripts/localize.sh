#!/bin/sh
# localize.sh IN.a OUT.a: joins a static library into one object in which only
# pl_* stays global. A static libplait can then not clash with its user's names.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ld -r --whole-archive "$1" -o "$tmp/plait.o"
objcopy --wildcard --keep-global-symbol='pl_*' "$tmp/plait.o"
rm -f "$2"
ar rcsD "$2" "$tmp/plait.o"
