#!/usr/bin/env bash
# run.sh [-run PATTERN]: builds keypost, keypostd and the end-to-end tests, and runs those in a network of their own.
#
# Inside that network keypostd listens on port 443 of names under .test, so issuer URLs look as they do in production:
# no port, several host names, one server. Nothing of it can collide with the machine's own servers or leave it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ "${KEYPOST_E2E_SKIP:-}" = 1 ]; then
	echo "SKIPPED end-to-end tests: KEYPOST_E2E_SKIP=1"
	exit 0
fi

"$root/test/tools/apt.sh" unshare ip node npm
kube=$("$root/test/tools/kube.sh")
node_modules=$("$root/test/tools/npm.sh")

# The process namespace is what ends every child, even when the tests are killed.
isolate=(unshare --net --mount --pid --fork --kill-child)
if ! "${isolate[@]}" true 2>/dev/null; then
	isolate+=(--user --map-root-user)
	if ! reason=$("${isolate[@]}" true 2>&1); then
		echo "end-to-end tests need network, mount and process namespaces, which this machine refuses: $reason" >&2
		echo "run them as root or allow unprivileged user namespaces; KEYPOST_E2E_SKIP=1 leaves them out" >&2
		exit 1
	fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./cmd/keypost ./cmd/keypostd
go test -c -tags e2e -o "$work/e2e.test" ./test/e2e
# Node looks for modules beside the script it runs.
mkdir "$work/npm"
cp "$here/npm/"*.mjs "$work/npm/"
ln -s "$node_modules" "$work/npm/node_modules"

flags=(-test.v -test.timeout 10m)
[ -z "${KEYPOST_E2E_OUT:-}" ] || flags+=(-test.artifacts -test.outputdir "$(mkdir -p "$KEYPOST_E2E_OUT" && cd "$KEYPOST_E2E_OUT" && pwd)")
[ "${1:-}" != -run ] || flags+=(-test.run "$2")

export KEYPOST_E2E_BIN=$work/bin KEYPOST_E2E_KUBE=$kube KEYPOST_E2E_NPM=$work/npm
cd "$here"
"${isolate[@]}" "$here/inside.sh" "$work/hosts" "$work/e2e.test" "${flags[@]}"
