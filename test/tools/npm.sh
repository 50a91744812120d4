#!/usr/bin/env bash
# npm.sh: installs the npm relying parties of the end-to-end tests once and prints their node_modules directory.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

manifest=$root/test/e2e/npm
command -v npm >/dev/null || { say "npm.sh: npm is missing: install Node.js 20 or newer with npm"; exit 1; }
lock=$(cksum <"$manifest/package-lock.json")
dir=$cache/npm-${lock%% *}

# `npm ci` installs exactly what the lock file names and hashes; install scripts of strangers do not run.
build() {
	cp "$manifest/package.json" "$manifest/package-lock.json" "$1/"
	npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund >&2
}

[ -d "$dir" ] || install_dir "$dir" build
echo "$dir/node_modules"
