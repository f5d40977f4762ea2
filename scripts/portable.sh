#!/bin/sh
# portable.sh BUILD [pack]: makes plait-VERSION-SYSTEM/ in BUILD, with `pack` also its
# .tar.xz. The folder has all that the command needs except glibc, and may
# lie anywhere:
#   bin/plait, lib/ (shared libraries), share/ (what `meson install` has there,
#   and the licenses of the libraries)
# portable.sh BUILD gpu DIR: makes gpu-check/ in BUILD likewise, without share/, of
# the programs that scripts/gpu-check.sh runs, and DIR/programs.tgz of it.
# Programs find the libraries by an RPATH, which holds for the libraries' own
# dependencies, too, and precedes LD_LIBRARY_PATH. Few of them exist as static
# archives, so all are copied.
# Ends with a test: everything but glibc comes from the folder, and a copy of it
# at another place writes text.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
stage=$build/portable-stage
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
name=plait-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
top=$build/$name
programs=plait
if [ "${2:-}" = gpu ]; then
    top=$build/gpu-check
    programs='plait-emu plait-test bench-gpu'
fi
glibc='(ld-linux.*|ld64|lib(c|m|dl|rt|pthread|resolv|util|anl))\.so\.[0-9]+'

fail() {
    echo "portable.sh: $*" >&2
    exit 1
}

libraries() { # libraries FILE...: of each needed one, its name and its path
    env -u LD_LIBRARY_PATH ldd "$@" | sed -n \
        -e '/not found/s/^[[:space:]]*\([^ ]*\) .*/\1 missing/p' \
        -e 's/^[[:space:]]*\([^ ]*\) => \([^ ]*\) (.*/\1 \2/p' | sort -u |
        grep -Ev "^$glibc "
}

install_plait() { # the command and its share/ into the folder
    DESTDIR=$PWD/$stage meson install -C "$build" --no-rebuild --strip \
        >"$build/portable.log" 2>&1 || { cat "$build/portable.log"; exit 1; }
    root=$(dirname "$(dirname "$(find "$stage" -path '*/bin/plait')")")
    mkdir -p "$top/share/licenses"
    cp "$root/bin/plait" "$top/bin"
    [ ! -d "$root/share" ] || cp -R "$root/share/." "$top/share"
    cp LICENSE "$top/share/licenses/plait"
    rm -rf "$stage"
}

rm -rf "$stage" "$top" "$top.tar.xz"
mkdir -p "$top/bin" "$top/lib"
if [ "$programs" = plait ]; then
    install_plait
else
    for program in $programs; do
        strip -o "$top/bin/$program" "$build/$program"
    done
fi

libraries "$top"/bin/* >"$build/portable.log"
while read -r lib path; do
    [ -e "$path" ] || fail "$lib is not installed"
    cp -L "$path" "$top/lib/$lib"
    [ "$programs" = plait ] || continue
    # Debian's record of who may copy it, where this is Debian.
    package=$(dpkg-query -S "$(realpath "$path")" 2>/dev/null |
        sed -n '1s/:.*//p')
    [ -z "$package" ] || [ ! -f "/usr/share/doc/$package/copyright" ] ||
        cp "/usr/share/doc/$package/copyright" \
            "$top/share/licenses/$package"
done <"$build/portable.log"
# shellcheck disable=SC2016
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$top"/bin/*
chmod 644 "$top"/lib/*

# The test, on a copy elsewhere.
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
cp -R "$top" "$bare/plait"
cp models/fable-moe-Q8_0.gguf "$bare/model"
there=$bare/plait
libraries "$there"/bin/* | while read -r lib path; do
    case $(realpath "$path") in
    "$(realpath "$there")"/*) ;;
    *) fail "$lib comes from $path" ;;
    esac
done
for file in "$there"/bin/* "$there"/lib/*; do
    dynamic=$(readelf -d "$file")
    for need in $(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        [ -e "$there/lib/$need" ] || echo "$need" | grep -Eqx "$glibc" ||
            fail "$(basename "$file") needs $need, which is not in lib/"
    done
    case $dynamic in
    *"(RUNPATH)"*) fail "$(basename "$file") has a RUNPATH: no RPATH holds" ;;
    esac
done
oldest=$(readelf -V "$there"/bin/* "$there"/lib/* |
    grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1)

tale() { # tale PROGRAM MODEL WORD...: WORD... run the program, no variable set
    program=$1 model=$2
    shift 2
    if ! env -i LD_LIBRARY_PATH= "$@" "$program" run -m "$model" -dev 'cpu*2' \
        -p 'Once upon a time' -n 8 --temp 0 </dev/null >"$bare/told" \
        2>"$bare/errors" || [ ! -s "$bare/told" ]; then
        cat "$bare/errors"
        fail "the copy writes nothing"
    fi
}
command=plait/bin/${programs%% *}
(cd / && tale "$bare/$command" "$bare/model")
# Again with the files of glibc and no others. The loader finds $ORIGIN by /proc.
alone="unshare -rpf --mount-proc -R"
if $alone / true 2>/dev/null; then
    mkdir "$bare/proc"
    for file in $(ldd "$there"/bin/* | grep -o '/[^ ]*'); do
        case $file in
        "$there"/*) ;;
        *) mkdir -p "$bare$(dirname "$file")" && cp -L "$file" "$bare$file" ;;
        esac
    done
    # shellcheck disable=SC2086
    tale "/$command" /model $alone "$bare"
    if [ "$programs" != plait ]; then
        for words in 'bench-gpu -t emu' 'plait-test --list'; do
            # shellcheck disable=SC2086
            env -i $alone "$bare" /plait/bin/$words >"$bare/told" ||
                fail "$words does not run"
        done
    fi
    echo "ran in a root with nothing but glibc:" \
        "$(cd "$bare" && find lib* -type f | tr '\n' ' ')"
else
    echo "chroot is not allowed here: not tried with glibc alone"
fi

pack() { # pack FOLDER FILE: the folder's name is in the file, too
    tar -C "$(dirname "$1")" --sort=name --owner=0 --group=0 --numeric-owner \
        -caf "$2" "$(basename "$1")"
    du -h "$2"
}
case ${2:-} in
pack) pack "$top" "$top.tar.xz" ;;
gpu) mkdir -p "$3" && pack "$top" "$3/programs.tgz" ;;
esac
echo "$top: $(du -sh "$top" | cut -f1), needs glibc ${oldest#GLIBC_} or later"
