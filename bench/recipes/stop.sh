#!/usr/bin/env bash
# stop.sh DIR: kills the server that a start.sh started in DIR, with all of its processes. Its data are not needed any more.
set -euo pipefail
[ -s "$1/pid" ] || exit 0
pid=$(cat "$1/pid")
kill -KILL -- "-$pid" 2>/dev/null || true # its own process group
while kill -0 -- "-$pid" 2>/dev/null && ! grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; do sleep 0.02; done
rm -f "$1/pid"
