#!/usr/bin/env bash
# lint.sh: golangci-lint over the module (.golangci.yml says what and why), shellcheck over the scripts.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

"$root/test/tools/apt.sh" shellcheck
cd "$root"
linter=$("$root/test/tools/gotool.sh" golangci-lint)
"$linter" run ./...
scripts=$(git ls-files --cached --others --exclude-standard | while read -r file; do
	if [ -f "$file" ] && head -n 1 "$file" | grep -qE '^#!.*\b(ba)?sh$|^# shellcheck shell='; then echo "$file"; fi
done)
# shellcheck disable=SC2086 # our own file names, none with a blank
shellcheck --external-sources $scripts
say "lint: clean"
