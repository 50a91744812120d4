#!/usr/bin/env bash
# inside.sh HOSTS COMMAND...: the first program in the namespaces that run.sh makes; HOSTS is a file to write.
set -euo pipefail
hosts=$1
shift
ip link set lo up
cat >"$hosts" <<'EOF'
127.0.0.1 localhost
127.0.0.1 oidc.keypost.test
127.0.0.1 prod-a.oidc.keypost.test prod-b.oidc.keypost.test prod-c.oidc.keypost.test
EOF
mount --bind "$hosts" /etc/hosts
exec "$@"
