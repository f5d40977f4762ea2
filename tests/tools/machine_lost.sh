#!/bin/bash
# machine_lost.sh SIGNAL MACHINE COMMAND...: starts COMMAND, an mpirun that
# generates without end, sends SIGNAL to the process of MACHINE once text comes,
# and waits until the job has ended. Fails unless it ends with an error and
# leaves no process behind. Prints what it said.
set -u
signal=$1 machine=$2
shift 2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export PLAIT_TEST_JOB=$dir

of_job() { # the processes of the job, by their environment
    grep -lzs "^PLAIT_TEST_JOB=$dir\$" /proc/[0-9]*/environ |
        cut -d/ -f3 | grep -vx "$$"
}
alive() { # whether PID is neither a zombie nor gone, nor a part of this script
    case $(ps -o stat=,comm= -p "$1") in
    '' | Z* | *machine_lost*) return 1 ;;
    esac
}

timeout -k 5 60 "$@" >"$dir/out" 2>"$dir/err" </dev/null &
job=$!
for _ in $(seq 600); do
    [ -s "$dir/out" ] && break
    sleep 0.1
done
[ -s "$dir/out" ] || { echo "no text comes"; cat "$dir/err"; exit 1; }
victim=$(grep -lzsE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$machine\$" \
    $(of_job | sed 's|.*|/proc/&/environ|') | cut -d/ -f3)
kill "-$signal" $victim || exit 1
wait "$job"
rc=$?
cat "$dir/err"
[ "$rc" = 0 ] && { echo "the job ended without an error"; exit 1; }
[ "$rc" = 124 ] && { echo "the job did not end"; exit 1; }
for _ in $(seq 100); do
    left=
    for p in $(of_job); do
        alive "$p" && left="$left $p"
    done
    [ -z "$left" ] && exit 0
    sleep 0.1
done
echo "left running:$left"
kill -9 $left
exit 1
