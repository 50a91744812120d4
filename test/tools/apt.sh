#!/usr/bin/env bash
# apt.sh PROGRAM...: makes sure that these programs exist, from Debian's packages where they are missing.
set -euo pipefail
# shellcheck source=test/tools/cache.sh
. "$(dirname "$0")/cache.sh"

# Debian keeps servers outside an ordinary user's PATH.
PATH=$PATH:/usr/sbin:/sbin

missing=()
for program in "$@"; do
	command -v "$program" >/dev/null && continue
	case $program in
	nginx) missing+=(nginx-light) ;;
	ip) missing+=(iproute2) ;;
	unshare) missing+=(util-linux) ;;
	node | npm) missing+=(nodejs npm) ;;
	*) missing+=("$program") ;;
	esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || { say "apt.sh: missing, and there is no apt-get here: ${missing[*]}"; exit 1; }
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || { say "apt.sh: not root; please run: sudo apt-get install ${missing[*]}"; exit 1; }
	as_root=(sudo -n)
fi
say "installing ${missing[*]} ..."
"${as_root[@]}" apt-get update -q >&2
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2
