#!/usr/bin/env bash
# vuln.sh: govulncheck over everything that keypost links.
#
# Database: KEYPOST_VULNDB (a file:// URL, a directory or a .tar.gz of github.com/golang/vulndb's data/osv) when set;
# otherwise https://vuln.go.dev; where that cannot be reached, vulndb.tar.gz in the tool cache or beside the checkout.
# Without any database the check is skipped loudly: an unreachable server is no statement about the code.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

govulncheck=$("$root/test/tools/gotool.sh" govulncheck)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

# database PLACE prints the file:// URL of an offline database.
database() {
	local place=$1
	case $place in
	file://*) echo "$place" && return ;;
	*.tar.gz) tar -xzf "$place" -C "$work" && place=$work ;;
	esac
	# The archive may hold the entries at its top or under data/osv.
	place=$(cd "$place" && pwd)
	[ ! -d "$place/data/osv" ] || place=$place/data/osv
	echo "file://$place"
}

if [ -n "${KEYPOST_VULNDB:-}" ]; then
	exec_db=$(database "$KEYPOST_VULNDB")
	"$govulncheck" -db "$exec_db" ./...
	exit
fi

# govulncheck exits with 3 for a finding and 1 for its own trouble; only trouble with the server may look elsewhere.
status=0
"$govulncheck" ./... 2>"$work/errors" || status=$?
cat "$work/errors" >&2
[ "$status" -ne 0 ] || exit 0
grep -q 'vuln\.go\.dev' "$work/errors" || exit "$status"

offline=$cache/vulndb.tar.gz
[ -f "$offline" ] || offline=$(find .. -maxdepth 4 -name vulndb.tar.gz -print -quit 2>/dev/null)
if [ -z "$offline" ]; then
	say "SKIPPED vulnerability check: https://vuln.go.dev cannot be reached and there is no $cache/vulndb.tar.gz"
	exit 0
fi
say "https://vuln.go.dev cannot be reached; using the database in $offline"
exec_db=$(database "$offline")
"$govulncheck" -db "$exec_db" ./...
