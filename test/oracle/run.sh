#!/usr/bin/env bash
# run.sh: compares our documents with those of Kubernetes' own code, in this folder's own module.
#
# After a change of keypost's dependencies `go mod tidy` belongs here, too.
set -euo pipefail
cd "$(dirname "$0")"
GOFLAGS=-mod=readonly GOWORK=off go test -count=1 -v ./...
