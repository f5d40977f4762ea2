#!/bin/bash
# gpu-check.sh [--short] [--use DIR] [--keep DIR] [DEVICE]: checks that plait's bits are
# right on a GPU, and measures its speed and which instructions take the time. DEVICE is
# a driver and a number as in -dev (cuda:0, opencl:1), or emu, the tests' emulator; by
# default the first GPU that CUDA, HIP or OpenCL has. Ends with a table. The exit code
# is 1 if a bit differs or something fails, 2 if nothing could be tried. The most
# important parts come first, because the script ends after ten minutes.
#
# Builds in build/, for which it needs a C compiler, meson, ninja and the libraries
# that scripts/deps.sh names. For a machine that has only a driver,
# `gpu-check.sh --pack DIR` writes the programs and their libraries to DIR, and
# `gpu-check.sh --use DIR` takes them from there. Such a machine needs a checkout too,
# at any place. --short: tiny sizes, and no models of random weights. --keep: writes to
# DIR table.txt, log.txt (the output of all parts), rates.txt (bench-gpu), speed.json
# (plait bench), profile.txt and its trace.json.
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
keep=
device=
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=1 ;;
    --use | --pack | --keep)
        [ $# -gt 1 ] || usage
        case $1 in
        --use) use=$2 ;;
        --pack) pack=$2 ;;
        --keep) keep=$2 ;;
        esac
        shift
        ;;
    -*) usage ;;
    *) device=$1 ;;
    esac
    shift
done

tmp=$(mktemp -d) || exit 2
random=
trap 'rm -rf "$tmp" "$random"' EXIT
build=${BUILD:-build}
bad=0
table=

row() { # row WHAT RESULT
    table="$table$(printf '%-44s %s' "$1" "$2")
"
    printf '== %-41s %s\n' "$1" "$2"
    [ -z "$keep" ] || printf '%s' "$table" >"$keep/table.txt"
}

left() { # seconds until ten minutes are over, less what the rest needs
    echo $((570 - $(date +%s) + begun))
}

# part SECONDS WHAT COMMAND...: runs a command, whose output goes to $tmp/said, and adds
# a row. A command that exceeds its SECONDS has failed, unless the ten minutes ended it
# or $slow is set.
slow=
part() {
    limit=$1
    what=$2
    shift 2
    cut=
    [ "$limit" -gt "$(left)" ] && limit=$(left) && cut=1
    if [ "$limit" -lt 5 ]; then
        row "$what" "not tried: ten minutes are over"
        : >"$tmp/said"
        return 1
    fi
    at=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$tmp/said" 2>&1 </dev/null
    rc=$?
    took="$(($(date +%s) - at)) s"
    [ -z "$keep" ] ||
        { echo "== $what: exit $rc, $took" && cat "$tmp/said"; } >>"$keep/log.txt"
    case $rc in
    0) row "$what" "ok, $took" ;;
    124 | 137)
        row "$what" "${cut:+ten minutes are over: }not done after $limit s"
        tail -n 40 "$tmp/said"
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

programs='plait-emu plait-test bench-gpu'
build_all() {
    for need in "${CC:-cc}" meson ninja; do
        command -v "$need" >/dev/null || {
            echo "gpu-check: there is no $need here; see --use" >&2
            exit 2
        }
    done
    [ -f "$build/build.ninja" ] || meson setup "$build" >"$tmp/said" 2>&1 || {
        tail -n 8 "$tmp/said"
        echo "gpu-check: a library is missing; scripts/deps.sh build installs" \
            "what is, or see --use" >&2
        exit 2
    }
    # shellcheck disable=SC2086
    ninja -C "$build" $programs >"$tmp/said" 2>&1 || {
        tail -n 40 "$tmp/said"
        echo "gpu-check: the build failed; cmocka is needed, too" >&2
        exit 2
    }
}

if [ -n "$use" ]; then
    tar -C "$tmp" -xzf "$use/programs.tgz" || exit 2
    bin=$tmp/gpu-check/bin
else
    build_all
    bin=$PWD/$build
fi
if [ -n "$pack" ]; then
    scripts/deps.sh portable && scripts/portable.sh "$build" gpu "$pack"
    exit
fi
begun=$(date +%s)
if [ -n "$keep" ]; then
    mkdir -p "$keep" || exit 2
    rm -f "$keep"/{log,table,rates,profile}.txt "$keep"/{speed,trace}.json
fi
if [ -z "${PLAIT_REFS:-}" ]; then
    PLAIT_REFS=$PWD/tests/refs
    for dir in "$PWD/../shared/refs" "$PWD/shared/refs"; do
        [ -d "$dir" ] && PLAIT_REFS=$dir
    done
    export PLAIT_REFS
fi

# ---- the machine -------------------------------------------------------------

# Keeps the driver open. Otherwise it starts anew for each program, which takes seconds.
[ -w /dev/nvidia0 ] && exec 9<>/dev/nvidia0
# Folders in which drivers keep what they compile, and in which containers have drivers.
export HOME=${HOME:-/root}
export CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-${TMPDIR:-/tmp}/plait-gpu-check}
# Compiled kernels and measured rates are kept for the parts of this check alone.
export XDG_CACHE_HOME=$tmp/cache PLAIT_TEST_CACHE=$tmp/cache
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
    [ -e "$dir/libcuda.so.1" ] &&
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir"
done

free_gb() { # free_gb DIR: free space in GB
    df -Pk "$1" 2>/dev/null |
        awk 'NR == 2 { n = int($4 / 1e6) } END { print n + 0 }'
}
# Models of random weights are files of many GB.
if [ -z "${TMPDIR:-}" ] && [ "$(free_gb /tmp)" -lt 20 ] &&
    [ "$(free_gb /dev/shm)" -ge 40 ]; then
    export TMPDIR=/dev/shm
fi

# ---- the GPU -----------------------------------------------------------------

export bin short device
first() {
    "$bin/bench-gpu" -t ${device:+"$device"}
}
export -f first
part 120 "tiny kernels" bash -c first
cp "$tmp/said" "$tmp/first"
grep -q '^[a-z]*:[0-9]' "$tmp/first" || {
    cat "$tmp/first" # no such GPU, as it says
    exit 2
}
[ -n "$device" ] || device=$(sed -n '/^[a-z]*:[0-9]/{s/ .*//p;q}' "$tmp/first")
echo "-dev $device"
part 30 "devices" "$bin/plait-emu" devices
cat "$tmp/said"

# ---- bits of a model, rates --------------------------------------------------

# The bundled model's logits of a few tokens, with two ranks everywhere.
model=models/fable-moe-Q8_0.gguf
logits() {
    "$bin/plait-emu" logits -m "$model" --ranks 2 -dev "$1" -o "$2" \
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

if [ -n "$short" ]; then
    cp "$tmp/first" "$tmp/rates"
else
    part 120 "rates" "$bin/bench-gpu" "$device"
    cp "$tmp/said" "$tmp/rates"
fi
cat "$tmp/rates"
[ -z "$keep" ] || cp "$tmp/rates" "$keep/rates.txt"
part 60 "rates for plans" "$bin/plait-emu" devices --measure -dev "$device"
cat "$tmp/said"

# ---- kernels, models ---------------------------------------------------------

export PLAIT_GPU_TEST=$device
bits() { # bits SECONDS GROUP
    part "$1" "bits of kernels, $2" "$bin/plait-test" -v "$2" || return
    grep -q 'went through the GPU: [1-9]' "$tmp/said" || {
        row "" "FAILED: no call went through the GPU"
        bad=1
    }
}

# rate NAME SECONDS OPTION...: tokens a second of prompt and generation, and the bytes
# that generation reads as a share of those that the GPU copies. More than SECONDS
# is not a failure.
copied=$(awk '$1 == "copy_on_device" { print $4 }' "$tmp/rates")
rate() {
    name=$1
    limit=$2
    shift 2
    slow=1
    part "$limit" "speed of $name" "$bin/plait-emu" bench --no-limits -o json \
        -dev "$device" -r "${rounds:-3}" "$@"
    rc=$?
    slow=
    [ $rc = 0 ] || return
    [ -z "$keep" ] || cat "$tmp/said" >>"$keep/speed.json"
    rates=$(awk -v copied="$copied" -F': *' '
        function value(s) { gsub(/[",]/, "", s); return s + 0 }
        /"n_prompt"/ { prompt = value($2) }
        /"read_bytes"/ { bytes = value($2) }
        /"median_ts"/ {
            if (prompt > 0)
                printf "prompt %.0f t/s; ", value($2)
            else
                printf "generation %.1f t/s", value($2)
            if (!prompt && copied)
                printf ", %.0f %% of what is copied", \
                    value($2) * bytes / copied / 1e7
        }' "$tmp/said")
    row "" "$rates"
}

# profile NAME MODEL: the time of each kind of instruction in a step of one token, in
# which each is executed alone. The table gets the three that take most.
profile() {
    slow=1
    part 60 "profile of $1" "$bin/plait-emu" logits -m "$2" -dev "$device" \
        --tokens 1 --trace "$tmp/trace.json" -o "$tmp/other"
    rc=$?
    slow=
    [ $rc = 0 ] || return
    awk -F'"' '/"ph": "X"/ {
        split($0, part, /"dur": /)
        name = $4
        if (match($0, /"tensor": "[^"]*weight"/)) {
            weight = substr($0, RSTART + 11, RLENGTH - 12)
            sub(/^blk\.[0-9]+\./, "", weight)
            name = name " " weight
        }
        us[name] += part[2]
        n[name]++
        all += part[2]
    }
    END {
        for (k in us)
            printf "%10.1f us %3.0f %% %4d times %s\n", us[k], \
                100 * us[k] / all, n[k], k
    }' "$tmp/trace.json" | sort -rn >"$tmp/profile"
    while read -r line; do row "" "$line"; done < <(head -n 3 "$tmp/profile")
    [ -z "$keep" ] || cp "$tmp/trace.json" "$keep/trace.json"
    [ -z "$keep" ] || { echo "== $1" && cat "$tmp/profile"; } >>"$keep/profile.txt"
}

random_weights() { # random_weights SHAPE GB: a model whose file has GB
    if [ "$(free_gb "${TMPDIR:-/tmp}")" -lt "$2" ]; then
        row "speed of $1 Q4_K_M" "skipped: ${TMPDIR:-/tmp} has no $2 GB"
        return
    fi
    random=${TMPDIR:-/tmp}/plait-gpu-check-$$.gguf
    slow=1
    part 120 "random weights of $1" "$bin/plait-emu" synth --shape "$1" \
        --type q4_k_m -o "$random"
    rc=$?
    slow=
    if [ $rc = 0 ]; then
        rate "$1 Q4_K_M" 120 -m "$random" -p 512 -n 64
        profile "$1 Q4_K_M" "$random"
    fi
    rm -f "$random"
}

# sanitize TOOL PROGRAM...: runs NVIDIA's sanitizer, which finds errors that need not
# change bits.
sanitizer=$(command -v compute-sanitizer ||
    ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
sanitize() {
    tool=$1
    shift
    case $device in
    cuda*) ;;
    *) return ;;
    esac
    if [ -z "$sanitizer" ]; then
        row "compute-sanitizer $tool" "skipped: it is not installed"
        return
    fi
    part 100 "compute-sanitizer $tool" "$sanitizer" --tool "$tool" \
        --error-exitcode 9 "$@"
}

bits 60 test_cpu_ops
bits 60 test_gpu_kernels
if [ -n "$short" ]; then
    rounds=1
    rate "the bundled model" 60 -m "$model" -p 8 -n 2
    profile "the bundled model" "$model"
    sanitize memcheck "$bin/bench-gpu" -t "$device"
else
    rate "the bundled model" 60 -m "$model" -p 512 -n 64
    profile "the bundled model" "$model"
    random_weights qwen3-8b 6
    bits 100 test_cpu_attention
    part 150 "bits of test models" "$bin/plait-test" -v \
        gpu_that_is_asked_for_has_the_bits_of_cpu
    grep -q ' 1 skipped' "$tmp/said" && row "" "skipped: $PLAIT_REFS has none"
    sanitize memcheck "$bin/bench-gpu" -t "$device"
    # Its self test runs each kernel that the model names, if none is kept.
    slow=1
    sanitize racecheck env XDG_CACHE_HOME="$tmp/sanitized" "$bin/plait-emu" logits \
        -m "$model" -dev "$device" -o "$tmp/other" --tokens 1,15,200
    slow=
    bits 200 test_cpu_matmul
    random_weights qwen3moe-30b 20
fi

{
    printf '\n%s on %s, %d s\n%s' "$device" \
        "$(sed -n '/^[a-z]*:[0-9]/{s/[^ ]*  //p;q}' "$tmp/first")" \
        $(($(date +%s) - begun)) "$table"
    sed '/^[a-z]*:[0-9]/d' "$tmp/rates"
} >"$tmp/table"
cat "$tmp/table"
[ -z "$keep" ] || cp "$tmp/table" "$keep/table.txt"
exit $bad
