#!/bin/sh
# localize.sh LD OBJCOPY IN.a OUT.a: joins a static library into one object in
# which only pl_* stays global. A static libplait can then not clash with its
# user's names. LD and OBJCOPY are those of the machine it is built for.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$1" -r --whole-archive "$3" -o "$tmp/plait.o"
"$2" --wildcard --keep-global-symbol='pl_*' "$tmp/plait.o"
rm -f "$4"
ar rcsD "$4" "$tmp/plait.o"
