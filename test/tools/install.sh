#!/usr/bin/env bash
# install.sh: everything that the checks and the end-to-end tests need, installed once; a second run does nothing.
set -euo pipefail
tools=$(dirname "$0")
"$tools/apt.sh" node npm ip unshare strace nginx shellcheck
"$tools/npm.sh"
"$tools/gotool.sh" govulncheck
"$tools/gotool.sh" golangci-lint
"$tools/kube.sh"
