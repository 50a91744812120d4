#!/usr/bin/env bash
# kube.sh: builds kube-apiserver, kubectl and etcd once and prints the directory that holds them.
#
# Built from the module proxy with the hashes in test/kube/go.sum, because a download of release binaries would need a
# second source to trust. About seven minutes on two cores and 2 GB of memory, then nothing.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

kube=$(required k8s.io/kubernetes)
etcd=$(required go.etcd.io/etcd/server/v3)
dir=$cache/kube-$kube-etcd-$etcd

# The version would be v0.0.0-master otherwise, which clients compare with theirs.
stamp=k8s.io/component-base/version
minor=${kube#v1.}
ldflags="-s -w -X $stamp.gitVersion=$kube -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}"
ldflags+=" -X $stamp.gitTreeState=clean -X $stamp.buildDate=1970-01-01T00:00:00Z"

build() {
	cd "$root/test/kube"
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$1/etcd" go.etcd.io/etcd/server/v3
	CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$1/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
}

if [ ! -d "$dir" ]; then
	say "building kube-apiserver and kubectl $kube and etcd $etcd (once, minutes) ..."
	install_dir "$dir" build
fi
echo "$dir"
