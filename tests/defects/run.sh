#!/bin/sh
# Tests the tests: plants the defects of this directory, each alone, in a copy
# of the tree, and sees that the test that a patch names turns red.
#
#   tests/defects/run.sh [-j N] [PART ...]  defects whose name contains a PART,
#                                       N at a time, each in a copy of its own
#   tests/defects/run.sh --dry [PART ...]   only whether they still apply
#
# A patch opens with what is wrong ("defect: ") and who must notice ("test: ", a
# group, or a case where the others of its group take long); it may lie some
# lines off, so that it survives changes around it. "needs: " names what the
# processor must have for it to show, as /proc/cpuinfo has it; elsewhere it is
# skipped, and told. One that no longer applies or compiles is an error: write it
# anew. The list with the cases that turn red is doc/defects.md. Whether all
# apply, name a test that there is and are listed is seen first, in a second.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
dry=
jobs=1
[ "$1" = --dry ] && dry=1 && shift
[ "$1" = -j ] && jobs=$2 && shift 2
[ "$jobs" -ge 1 ] 2>/dev/null || { echo "-j: a number of copies"; exit 1; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
pids=
trap 'kill $pids 2>/dev/null; exit 130' INT TERM

if [ -z "$PLAIT_REFS" ] && [ -d "$root/../shared/refs" ]; then
    PLAIT_REFS=$(cd "$root/../shared/refs" && pwd)
    export PLAIT_REFS
fi
unset PLAIT_TIER
export CCACHE_NOHASHDIR=1 # one copy of the tree is like another

die() { echo "$*" >&2; exit 1; }
field() { sed -n "s/^$1: //p" "$2"; }

# Of a worker's $copy of the tree.
build() {
    ninja -C "$copy/build" plait-test plait >"$copy/build.log" 2>&1
}
# The named test alone, $2 seconds a group at most; names are matched by parts.
# Who waits for ever is red too.
tests() { "$copy/build/plait-test" -t "$2" "$1" >"$copy/test.log" 2>&1; }
# The names of the cases that failed, on one line.
red() {
    sed -n '/^failed:/,$s/^  [a-z0-9_]*: //p' "$copy/test.log" | tr '\n' ' '
}
# One of the workers does it; the others have nothing to do there.
mine() { mkdir "$tmp/done/$1" 2>/dev/null; }

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

# ---- a worker -----------------------------------------------------------------

make_copy() {
    mkdir "$copy"
    tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . |
        tar -C "$copy" -xf - ||
        { echo "the tree could not be copied"; return 1; }
    meson setup -Dwerror=false "$copy/build" "$copy" \
        >"$copy.log" 2>&1 && build && return
    cat "$copy.log" "$copy/build.log"
    echo "the tree does not build"
    return 1
}

# Red proves nothing where green was not before, and in which time.
green() {
    start=$(date +%s)
    tests "$1" 600 || { cat "$copy/test.log"
        echo "$1 is red without any defect"; return 1; }
    echo $(($(date +%s) - start)) >"$tmp/took/$1"
}

plant() {
    name=$1
    patch=$here/$name.patch
    group=$(field test "$patch")
    file=$copy/$(sed -n 's,^+++ b/,,p' "$patch")
    needs=$(field needs "$patch")
    if [ -n "$needs" ] && ! grep -qw "$needs" /proc/cpuinfo; then
        echo "skip  $name: this machine has no $needs"
        return 0
    fi
    cp "$file" "$copy.saved"
    if ! patch -d "$copy" -s -p1 -F3 --no-backup-if-mismatch <"$patch"
    then
        echo "STALE $name: does not apply"
    elif ! build; then
        echo "STALE $name: does not compile"
        grep -m 3 error: "$copy/build.log"
    elif tests "$group" $((60 + 4 * $(cat "$tmp/took/$group"))); then
        echo "GREEN $name: $(field defect "$patch")"
    else
        echo "red   $name: $(red)"
    fi
    cp "$copy.saved" "$file"
    rm -f "$file.rej"
}

# worker ITH STEP NAME...: what no other worker has done of a step.
worker() {
    copy=$tmp/$1
    step=$2
    shift 2
    [ -d "$copy" ] || make_copy || return 1
    for one; do
        mine "$step-$one" || continue
        "$step" "$one" || return 1
    done
}

# all STEP NAME...: by every worker; fails if one did.
all() {
    pids=
    for ith in $(seq "$jobs"); do
        worker "$ith" "$@" &
        pids="$pids $!"
    done
    fine=0
    for pid in $pids; do
        wait "$pid" || fine=1
    done
    return $fine
}

# ---- all of them ----------------------------------------------------------------

names=
groups=
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    chosen "$name" "$@" || continue
    names="$names $name"
    group=$(field test "$patch")
    case " $groups " in *" $group "*) ;; *) groups="$groups $group" ;; esac
done
mkdir "$tmp/done" "$tmp/took"
# shellcheck disable=SC2086 # names have no spaces
all green $groups || die "no defect was planted"
# shellcheck disable=SC2086
all plant $names | tee "$tmp/said"
red=$(grep -c '^red ' "$tmp/said")
skipped=$(grep -c '^skip ' "$tmp/said")
echo "$n defects, $red red, $skipped skipped"
[ $((red + skipped)) -eq "$n" ]
