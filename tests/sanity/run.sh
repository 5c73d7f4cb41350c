#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ansible-test sanity over a copy of the tracked files at the path that it wants, .../ansible_collections/inferops/serving.
# Usage: tests/sanity/run.sh [ansible-test sanity arguments]
set -eu -o pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
# outside of any checkout: ansible-test would ask that checkout's git which files there are
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/ansible_collections/inferops/serving
cache=${INFEROPS_CACHE:-/var/cache/inferops-serving}/ansible-test

# ansible-test keeps its environments below HOME; a folder of our own leaves the user's alone and survives a clone.
mkdir -p "$cache"
export HOME=$cache PIP_QUIET=1

# It makes environments without pip and fetches a bootstrap script for them. Python brings pip along: say so instead,
# under the name that this ansible-test would give to what it had fetched.
pip_version=$(python - <<'PYTHON'
import inspect
import re

from ansible_test._internal import python_requirements

print(re.search(r"pip='([0-9.]+)'", inspect.getsource(python_requirements.get_venv_packages)).group(1))
PYTHON
)
bootstrap=$HOME/.ansible/test/cache/get_pip_${pip_version//./_}.py
mkdir -p "$(dirname "$bootstrap")"
printf 'import ensurepip\n\nensurepip.bootstrap(upgrade=True)\n' > "$bootstrap"

mkdir -p "$stage"
# the link to ourselves below collections/ is for running from a checkout; the rest is what git tracks, as it is on disk
(cd "$root" && git ls-files --cached --others --exclude-standard -z -- . ':!collections' | \
    while IFS= read -r -d '' file; do if [[ -e $file ]]; then printf '%s\0' "$file"; fi; done | \
    tar --null --files-from=- --create) | tar -x -C "$stage"

cd "$stage"
ansible-test sanity --color no --python "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" "$@"
