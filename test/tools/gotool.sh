#!/usr/bin/env bash
# gotool.sh golangci-lint|govulncheck: builds the pinned tool once and prints its path.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

tool=${1:?golangci-lint or govulncheck}
case $tool in
golangci-lint) package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint version=v2.15.0 ;;
govulncheck) package=golang.org/x/vuln/cmd/govulncheck version=v1.8.0 ;;
*) say "gotool.sh: no tool $tool" && exit 2 ;;
esac

# Both read the standard library that the running toolchain brings, and refuse one newer than they were built with.
dir=$cache/$tool-$version-$(go env GOVERSION)

# `go install PACKAGE@VERSION` takes every dependency from that version's own go.mod and checks it against the checksum
# database, so the version alone is a pin.
build() { CGO_ENABLED=0 GOFLAGS='' GOBIN=$1 go install -trimpath -ldflags "-s -w" "$package@$version"; }

if [ ! -d "$dir" ]; then
	say "building $tool $version (once) ..."
	install_dir "$dir" build
fi
echo "$dir/$tool"
