#!/bin/sh
# examples.sh BUILD: installs a built directory into a temporary root, builds
# the examples against it as a stranger would, by pkg-config, and runs them: by
# the words of UNDER, if that is set ("valgrind -q"). Python's example has the
# installed library, but the package of the checkout.
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

model=models/fable-moe-Q8_0.gguf
start='Once upon a time'
run() { # run NAME ARGUMENT...: one example; its text goes to NAME.txt
    name=$1
    shift
    echo "== $name"
    # shellcheck disable=SC2086
    $under "$root/$name" "$@" >"$root/$name.txt"
    tail -n 3 "$root/$name.txt"
}
run own_op 'cpu*2'
run tale $model 'cpu*2' "$start"
run plan_only $model 'gpu:24GiB:1TB/s*2'
run batch_sequences $model 'cpu*2' "$start" 'The king' 'A fox'
printf 'Tell me a "tale".\nMore.\n' >"$root/asked"
run chat_loop $model 'cpu*2' <"$root/asked"
"$(find "$root" -name plait -type f -perm -u+x)" version

if ! command -v python3 >/dev/null; then
    echo "no python3: first_text.py and embedded_server are not run"
    exit 0
fi
echo "== first_text.py"
PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 python3 examples/first_text.py \
    $model 'cpu*2' >"$root/first.txt"
diff "$root/tale.txt" "$root/first.txt"

echo "== embedded_server"
# shellcheck disable=SC2086
$under "$root/embedded_server" $model 0 'cpu*2' >"$root/url" &
server=$!
trap 'kill $server 2>/dev/null || :; rm -rf "$root"' EXIT
until grep -q http "$root/url"; do
    kill -0 $server
    sleep 0.1
done
python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], b"Once upon a time").read().decode())
' "$(cat "$root/url")"
kill $server
wait $server
