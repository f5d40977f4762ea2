#!/bin/sh
# Tests the tests: plants the defects of this directory, each alone, in a copy
# of the tree, and sees that the test that a patch names turns red.
#
#   tests/defects/run.sh [PART ...]     defects whose name contains a PART
#   tests/defects/run.sh --dry [PART ...]   only whether they still apply
#
# A patch opens with what is wrong ("defect: ") and who must notice ("test: ", a
# group, or a case where the others of its group take long); it may lie some
# lines off, so that it survives changes around it. One that no longer applies
# or compiles is an error: write it anew. The list with the cases that turn red
# is doc/defects.md. Whether all apply, name a test that there is and are listed
# is seen first, in a second.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
dry=
[ "$1" = --dry ] && dry=1 && shift
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

if [ -z "$PLAIT_REFS" ] && [ -d "$root/../shared/refs" ]; then
    PLAIT_REFS=$(cd "$root/../shared/refs" && pwd)
    export PLAIT_REFS
fi
unset PLAIT_TIER
export CCACHE_NOHASHDIR=1 # one copy of the tree is like another

die() { echo "$*" >&2; exit 1; }
field() { sed -n "s/^$1: //p" "$2"; }
build() { ninja -C "$tmp/plait/build" plait-test plait >"$tmp/build.log" 2>&1; }
# The named test alone, $2 seconds a group at most; names are matched by parts.
# Who waits for ever is red too.
tests() { "$tmp/plait/build/plait-test" -t "$2" "$1" >"$tmp/test.log" 2>&1; }
# The names of the cases that failed, on one line.
red() { sed -n '/^failed:/,$s/^  [a-z0-9_]*: //p' "$tmp/test.log" | tr '\n' ' '; }

chosen() {
    [ $# -eq 1 ] && return 0
    name=$1
    shift
    for part; do
        case $name in *"$part"*) return 0 ;; esac
    done
    return 1
}

# Whether it can be planted at all.
fits() {
    file=$(sed -n 's,^+++ b/,,p' "$1")
    why=
    patch -o /dev/null -s -f -F3 "$root/$file" <"$1" >"$tmp/patch.log" 2>&1 ||
        why="does not apply"
    test=$(field test "$1")
    find "$root/tests" -name "$test.c" | grep -q . ||
        grep -qrF "TEST($test)" "$root/tests" || why="names no test"
    grep -qF "| \`$2\`: $(field defect "$1") | \`$file\` |" \
        "$root/doc/defects.md" || why="is not so in doc/defects.md"
    [ -z "$why" ] || echo "STALE $2: $why"
    [ -z "$why" ]
}

command -v patch >/dev/null || die "patch is not installed: apt install patch"
n=0
bad=0
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    chosen "$name" "$@" || continue
    n=$((n + 1))
    fits "$patch" "$name" || bad=$((bad + 1))
done
[ $n -gt 0 ] || die "no defect has such a name"
[ $bad -eq 0 ] || die "$bad of $n defects are stale"
[ -z "$dry" ] || { echo "$n defects apply"; exit 0; }

mkdir "$tmp/plait"
tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . |
    tar -C "$tmp/plait" -xf - || die "the tree could not be copied"
if ! meson setup -Dwerror=false "$tmp/plait/build" "$tmp/plait" \
    >"$tmp/build.log" 2>&1 || ! build
then
    cat "$tmp/build.log"
    die "the tree does not build"
fi

# Red proves nothing where green was not before.
wanted=
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    chosen "$name" "$@" || continue
    group=$(field test "$patch")
    case " $wanted " in *" $group "*) ;; *) wanted="$wanted $group" ;; esac
done
for group in $wanted; do
    tests "$group" 300 ||
        { cat "$tmp/test.log"; die "$group is red without any defect"; }
done

for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    chosen "$name" "$@" || continue
    file=$tmp/plait/$(sed -n 's,^+++ b/,,p' "$patch")
    cp "$file" "$tmp/saved"
    if ! patch -d "$tmp/plait" -s -p1 -F3 --no-backup-if-mismatch <"$patch"
    then
        echo "STALE $name: does not apply"
        bad=$((bad + 1))
    elif ! build; then
        echo "STALE $name: does not compile"
        grep -m 3 error: "$tmp/build.log"
        bad=$((bad + 1))
    elif tests "$(field test "$patch")" 100; then
        echo "GREEN $name: $(field defect "$patch")"
        bad=$((bad + 1))
    else
        echo "red   $name: $(red)"
    fi
    cp "$tmp/saved" "$file"
    rm -f "$file.rej"
done
echo "$n defects, $((n - bad)) red"
[ $bad -eq 0 ]
