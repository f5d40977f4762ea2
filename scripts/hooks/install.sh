#!/bin/sh
# install.sh: has Git run the hooks beside this file. The path is relative, so
# each worktree runs those of the commit that it has checked out.
set -eu
cd "$(dirname "$0")/../.."
ours=scripts/hooks
theirs=$(git config core.hooksPath || true)
if [ -n "$theirs" ] && [ "$theirs" != $ours ]; then
    echo "hooks: core.hooksPath is $theirs already; to replace it:" \
        "git config core.hooksPath $ours" >&2
    exit 1
fi
for hook in "$(git rev-parse --git-common-dir)"/hooks/*; do
    case $hook in
    *.sample | *'/*') ;;
    *) echo "hooks: $hook does not run any more" ;;
    esac
done
git config core.hooksPath $ours
echo "hooks: Git runs $ours/pre-commit and $ours/commit-msg from now on;" \
    "git config --unset core.hooksPath ends that"
