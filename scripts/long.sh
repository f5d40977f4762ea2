#!/usr/bin/env bash
# long.sh [NAME...]: the long tier, all that is worth running for hours: the
# parts below or those named. A part that passed is not run again, and tests and
# defects go on where they were cut short, as long as the commit is the same and
# until build-long/ is removed.
# PLAIT_PART=I/N does the I-th of N shares, on as many machines. Ends with a
# table, and with status 0 if every part passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
share=${PLAIT_PART:-0/1}
state=build-long/${share/\//-of-}
commit=$(git rev-parse HEAD 2>/dev/null || echo none)
if [ -f "$state/commit" ] && [ "$(cat "$state/commit")" != "$commit" ]; then
    echo "$state: begun at commit $(cat "$state/commit"); remove it to begin" \
        "anew" >&2
    exit 1
fi
mkdir -p "$state"
echo "$commit" >"$state/commit"
jobs=$(($(nproc) > 1 ? 2 : 1))

# compile DIR OPTION...: a build by clang, asserts on.
compile() {
    local dir=$1
    shift
    [ -f "$dir/build.ninja" ] ||
        CC=clang meson setup "$dir" -Db_ndebug=false "$@" || return
    ninja -C "$dir" plait plait-test
}

# tests DIR TIER ARGUMENT...: the tests of a build; passed groups are noted.
tests() {
    local dir=$1 tier=$2
    shift 2
    PLAIT_TIER=$tier "$dir/plait-test" --log "$state/$name.groups" "$@"
}

fuzz() {
    local target=$1
    mkdir -p "build-full/found-$target"
    "build-full/fuzz-$target" -max_total_time="${FUZZ_SECONDS:-300}" \
        -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="build-full/crash-$target-" \
        "build-full/found-$target" "fuzz/corpus/$target"
}
export -f fuzz

compile_full() {
    compile build-full -Db_sanitize=address,undefined -Doptimization=1 \
        -Dc_args="-gline-tables-only -fno-sanitize-recover=all" -Dfuzz=true
}

part_short() { PLAIT_TIER=long scripts/deps.sh test && make test; }
part_tests() { scripts/clients.sh build/clients-long long && tests build long; }
part_each() { tests build short -j "$jobs" --each; }
part_ptx() { make test-ptx; }
# Compilers from PyPI: what they make of the GPUs' kernels, by device.
part_code() { make -k check-ptx check-hip; }
part_clang() { compile build-clang && tests build-clang short -j "$jobs"; }
part_asan() {
    # Clang 14 misreads the TLS of libraries that tests open and close.
    export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0
    export UBSAN_OPTIONS=print_stacktrace=1
    # The one OpenCL that the tests install; others leak in their own ways.
    export OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd
    compile_full && tests build-full brief -j "$jobs"
}
part_fuzz() {
    local names
    names=$(sed -n 's/^FUZZ(\([a-z]*\).*)$/\1/p' fuzz/fuzz_list.h)
    compile_full || return
    # shellcheck disable=SC2086
    ninja -C build-full $(printf 'fuzz-%s ' $names) &&
        printf '%s\n' $names | xargs -P "$jobs" -I NAME bash -c 'fuzz NAME'
}
part_tsan() {
    local fixed=
    setarch -R true 2>/dev/null && fixed="setarch -R"
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
    compile build-races -Db_sanitize=thread -Doptimization=1 \
        -Dc_args=-gline-tables-only || return
    PLAIT_TIER=brief $fixed build-races/plait-test -j "$jobs" \
        --log "$state/$name.groups" test_exec_ test_device_ \
        test_engine_scenes test_engine_threads test_http_ test_serve \
        test_models test_hub
}
# Valgrind's processor has AVX2 and no more. It does not know pidfd_open, which
# devices in processes want.
part_valgrind() {
    local with="valgrind -q --error-exitcode=9 --leak-check=full"
    with+=" --errors-for-leak-kinds=definite --show-leak-kinds=definite"
    with+=" --suppressions=scripts/valgrind.supp"
    PLAIT_TIER=brief $with build/plait-test test_api_walk test_api_graph \
        test_exec_misuse test_engine_mtp &&
        UNDER=$with scripts/examples.sh build
}
# Compiled by pip, as Python's users have it.
part_wheel() {
    local python=build-long/venv/bin/python
    python3 -m venv build-long/venv && $python -m pip install -q . &&
        $python examples/first_text.py models/fable-moe-Q8_0.gguf
}
# The programs that measure a GPU, packed for a machine without a compiler.
part_gpu() {
    scripts/gpu-check.sh --pack build-long/gpu &&
        scripts/gpu-check.sh --use build-long/gpu --short emu
}
part_packages() { scripts/deps.sh packages && scripts/packages.py; }
part_defects() { tests/defects/run.py -j "$jobs" --log "$state/defects.done"; }

parts="short tests each ptx code clang asan fuzz tsan valgrind wheel gpu packages defects"
[ $# -gt 0 ] && parts=$*
PLAIT_TIER=long scripts/deps.sh gate && make all || exit 1
rc=0
for name in $parts; do
    [ -e "$state/$name.passed" ] && continue
    echo "=== $name"
    start=$SECONDS
    if "part_$name" 2>&1 | tee "$state/$name.log"; then
        echo "$((SECONDS - start)) s" >"$state/$name.passed"
    else
        rc=1
    fi
done

echo
for name in $parts; do
    log=$state/$name.log
    line=$(grep -hE '^[0-9]+ (passed|defects), ' "$log" | tail -n 1)
    if [ -e "$state/$name.passed" ]; then
        printf '%-8s passed in %s  %s\n' "$name" "$(cat "$state/$name.passed")" \
            "$line"
    else
        printf '%-8s FAILED, %s  %s\n' "$name" "$log" "$line"
    fi
    grep -h '^unstable: ' "$log"
done
exit $rc
