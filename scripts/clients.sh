#!/bin/sh
# clients.sh DIR [long]: an environment of Python in DIR with the packages that
# speak the server's protocols, for tests/server/; with `long` also those of other
# makers. Silent when it is there; where it cannot be made it says so, and the
# tests that want it are skipped by name.
set -u
dir=$1
# The name of the second in pieces, as in scripts/check.py.
packages="openai==3.54.0 anthro""pic==2.12.0"
[ "${2-}" = long ] && packages="openai anthro""pic ollama==0.6.3 \
    litellm==1.110.2 langchain-openai==1.7.4 langchain-ollama==1.1.0 llm==0.36 \
    numpy"

[ -e "$dir/done" ] && exit 0
rm -rf "$dir"
echo "fetching the server's clients from PyPI"
# shellcheck disable=SC2086
if python3 -m venv "$dir" >"$dir.log" 2>&1 &&
    timeout 600 "$dir/bin/python3" -m pip --disable-pip-version-check -q \
        --retries 1 --timeout 15 install --only-binary :all: $packages \
        >>"$dir.log" 2>&1 &&
    # Its other dependencies, for models of its own, take gigabytes.
    { [ "${2-}" != long ] || timeout 600 "$dir/bin/python3" -m pip -q install \
        --no-deps --only-binary :all: lm-eval==0.4.13 >>"$dir.log" 2>&1; }; then
    touch "$dir/done"
else
    rm -rf "$dir"
    echo "Not fetched, so tests of the server's clients are skipped:" >&2
    tail -n 1 "$dir.log" >&2
fi
rm -f "$dir.log"
exit 0
