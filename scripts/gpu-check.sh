#!/bin/bash
# gpu-check.sh [--short] [--use DIR] [DEVICE]: whether plait is right and fast on
# the GPU at hand, a driver and a number as in -dev (cuda:0, opencl:1, emu); by
# itself the first that CUDA, HIP or OpenCL has. In the end a table; exit code 1 where
# a bit differs or something fails, 2 where nothing could be tried.
#
# Builds in build-gpu, for which it needs a C compiler, meson, ninja and the
# libraries that scripts/deps.sh names. For a machine without them
# `gpu-check.sh --pack DIR` puts what a build has into DIR, with its libraries,
# and `gpu-check.sh --use DIR` takes it from there; both machines need the
# checkout alone. --short: tiny sizes, and no models of random weights.
# shellcheck disable=SC2317 # functions that a shell below calls
set -u
cd "$(dirname "$0")/.." || exit 2

usage() {
    sed -n '2,/^# shellcheck/s/^# \{0,1\}//p' "$0" | sed '$d'
    exit 2
}

short=
use=
pack=
device=
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=1 ;;
    --use | --pack)
        [ $# -gt 1 ] || usage
        [ "$1" = --use ] && use=$2 || pack=$2
        shift
        ;;
    -*) usage ;;
    *) device=$1 ;;
    esac
    shift
done

begun=$(date +%s)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
bad=0
table=

row() { # row WHAT RESULT
    table="$table$(printf '%-44s %s' "$1" "$2")
"
    printf '== %-41s %s\n' "$1" "$2"
}

left() { # seconds until ten minutes are over, less what the rest needs
    echo $((570 - $(date +%s) + begun))
}

# part SECONDS WHAT COMMAND...: a row; what it says goes to $tmp/said. What hangs
# has failed, but not what the ten minutes cut short or where $slow may be.
slow=
part() {
    limit=$1
    what=$2
    shift 2
    cut=
    [ "$limit" -gt "$(left)" ] && limit=$(left) && cut=1
    if [ "$limit" -lt 5 ]; then
        row "$what" "not tried: ten minutes are over"
        return 1
    fi
    at=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$tmp/said" 2>&1 </dev/null
    rc=$?
    took="$(($(date +%s) - at)) s"
    case $rc in
    0) row "$what" "ok, $took" ;;
    124 | 137)
        row "$what" "${cut:+ten minutes are over: }not done after $limit s"
        [ -n "$cut$slow" ] || bad=1
        ;;
    *)
        row "$what" "FAILED, exit $rc, $took"
        tail -n 40 "$tmp/said"
        bad=1
        ;;
    esac
    return $rc
}

# ---- programs ----------------------------------------------------------------

build_all() {
    for need in "${CC:-cc}" meson ninja; do
        command -v "$need" >/dev/null || {
            echo "gpu-check: there is no $need here; see --use" >&2
            exit 2
        }
    done
    [ -f build-gpu/build.ninja ] || meson setup build-gpu >"$tmp/said" 2>&1 || {
        tail -n 8 "$tmp/said"
        echo "gpu-check: a library is missing; scripts/deps.sh build installs" \
            "what is, or see --use" >&2
        exit 2
    }
    ninja -C build-gpu >"$tmp/said" 2>&1 || {
        tail -n 40 "$tmp/said"
        exit 2
    }
    [ -x build-gpu/plait-test ] || {
        echo "gpu-check: cmocka is missing, so there are no tests" >&2
        exit 2
    }
}

programs='plait plait-test bench-gpu'

pack_all() {
    mkdir -p "$pack" || exit 2
    for p in $programs; do
        cp "build-gpu/$p" "$pack/" && strip "$pack/$p" || exit 2
        ldd "build-gpu/$p"
    done | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u |
        grep -vE '/lib(c|m|dl|pthread|rt)\.so' >"$tmp/libraries"
    while read -r library; do
        cp -L "$library" "$pack/" || exit 2
    done <"$tmp/libraries"
    du -sh "$pack"
}

if [ -n "$use" ]; then
    bin=$(cd "$use" && pwd) || exit 2
    export LD_LIBRARY_PATH="$bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
    build_all
    bin=$PWD/build-gpu
fi
if [ -n "$pack" ]; then
    pack_all
    exit 0
fi
if [ -z "${PLAIT_REFS:-}" ]; then
    PLAIT_REFS=$PWD/tests/refs
    for dir in "$PWD/../shared/refs" "$PWD/shared/refs"; do
        [ -d "$dir" ] && PLAIT_REFS=$dir
    done
    export PLAIT_REFS
fi

# ---- which -------------------------------------------------------------------

bench() {
    "$bin/bench-gpu" ${short:+-t} ${device:+"$device"}
}
export -f bench
export bin short device

part 240 "rates" bash -c bench
cp "$tmp/said" "$tmp/rates"
grep -q '^[a-z]*:[0-9]' "$tmp/rates" || exit 2 # no such GPU, as it said
[ "$bad" = 1 ] || cat "$tmp/rates"
[ -n "$device" ] || device=$(sed -n '1s/ .*//p' "$tmp/rates")
echo "-dev $device"

# ---- bits --------------------------------------------------------------------

export PLAIT_GPU_TEST=$device
export PLAIT_TEST_CACHE=$tmp/cache
groups='test_cpu_ops test_gpu_kernels'
[ -n "$short" ] || groups="$groups test_cpu_attention test_cpu_matmul"
for group in $groups; do
    part 150 "bits of kernels, $group" "$bin/plait-test" "$group" || continue
    grep -q 'went through the GPU: [1-9]' "$tmp/said" || {
        row "" "FAILED: no call went through the GPU"
        bad=1
    }
done
if [ -z "$short" ]; then
    part 150 "bits of test models" "$bin/plait-test" \
        gpu_that_is_asked_for_has_the_bits_of_cpu
    grep -q ' 1 skipped' "$tmp/said" && row "" "skipped: $PLAIT_REFS has none"
fi

# The bundled model's logits of a few tokens, with two ranks everywhere.
model=models/fable-moe-Q8_0.gguf
logits() {
    "$bin/plait" logits -m "$model" --ranks 2 -dev "$1" -o "$2" \
        --tokens 1,15,200,31,7,90,411,5,66,1023,8,14
}
same() {
    logits "$1" "$tmp/other" && cmp "$tmp/cpu" "$tmp/other"
}
export -f logits same
export model tmp
if part 60 "logits on cpu*2" bash -c "logits 'cpu*2' $tmp/cpu"; then
    for dev in "$device" "$device*2" "$device,cpu*1"; do
        part 60 "logits on $dev are those of cpu*2" bash -c "same '$dev'"
    done
fi

sanitizer=$(command -v compute-sanitizer ||
    ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
case $device in
cuda*)
    if [ -n "$sanitizer" ]; then
        part 120 "compute-sanitizer memcheck" "$sanitizer" --tool memcheck \
            --error-exitcode 9 "$bin/bench-gpu" -t "$device"
    else
        row "compute-sanitizer memcheck" "skipped: it is not installed"
    fi
    ;;
esac

# ---- models ------------------------------------------------------------------

slow=1

# rate NAME WHAT...: prompt and generation, and what generation reads beside
# the bytes that the GPU copies.
copied=$(awk '$1 == "copy_on_device" { print $4 }' "$tmp/rates")
rate() {
    name=$1
    limit=$2
    shift 2
    part "$limit" "speed of $name" "$bin/plait" bench --no-limits -o json \
        -dev "$device" -r "${rounds:-3}" "$@" || return
    rates=$(awk -v copied="$copied" -F': *' '
        function value(s) { gsub(/[",]/, "", s); return s + 0 }
        /"n_prompt"/ { prompt = value($2) }
        /"read_bytes"/ { bytes = value($2) }
        /"median_ts"/ {
            if (prompt > 0)
                printf "prompt %.0f t/s; ", value($2)
            else
                printf "generation %.1f t/s, %.0f %% of what is copied", \
                    value($2), value($2) * bytes / copied / 1e7
        }' "$tmp/said")
    row "" "$rates"
}

room() { # GB that the temporary directory has
    df -Pk "${TMPDIR:-/tmp}" | awk 'NR == 2 { print int($4 / 1e6) }'
}

if [ -n "$short" ]; then
    rounds=1
    rate "the bundled model" 60 -m "$model" -p 8 -n 2
else
    rate "the bundled model" 60 -m "$model" -p 512 -n 64
    # and how many GB of disk they take
    for shape in 'qwen3-8b 6' 'qwen3moe-30b 20'; do
        if [ "$(room)" -lt "${shape#* }" ]; then
            row "speed of ${shape% *} Q4_K_M" \
                "skipped: ${TMPDIR:-/tmp} has no ${shape#* } GB"
            continue
        fi
        rate "${shape% *} Q4_K_M" 150 --shape "${shape% *}" --type q4_k_m \
            -p 512 -n 64
    done
fi

printf '\n%s on %s, %d s\n%s' "$device" "$(sed -n '1s/[^ ]*  //p' "$tmp/rates")" \
    $(($(date +%s) - begun)) "$table"
sed 1d "$tmp/rates"
exit $bad
