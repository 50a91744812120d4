# shellcheck shell=bash
# Sourced by the scripts beside it: where built tools live, and how one is put there.
#
# Tools live outside the tree, so that a clean checkout, `git clean` and a second worktree share them. Every directory
# name carries the version: a changed pin builds beside the old tool, and nobody runs a stale one under a new name.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${KEYPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/keypost}
mkdir -p "$cache"

# Whatever GOFLAGS or workspace the caller has, the committed go.sum files decide what is built.
export GOFLAGS=-mod=readonly GOWORK=off

say() { printf '%s\n' "$*" >&2; }

# install_dir DIR COMMAND... runs COMMAND with an empty directory as its last argument and renames that directory to DIR
# when the command has succeeded: an interrupted build leaves nothing that looks complete. Once per script, and never as
# a condition (`if install_dir`, `install_dir &&`): there bash would ignore a failing line inside COMMAND.
install_dir() {
	local dir=$1
	shift
	staging=$(mktemp -d "$cache/.staging.XXXXXX")
	trap 'rm -rf "$staging"' EXIT
	"$@" "$staging"
	chmod 755 "$staging"
	mv -T "$staging" "$dir"
}

# required MODULE prints the version that test/kube/go.mod requires: the pin is written once.
required() { awk -v m="$1" '$1 == m { print $2; exit }' "$root/test/kube/go.mod"; }
