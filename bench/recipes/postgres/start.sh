#!/usr/bin/env bash
# start.sh DIR PORT: starts a PostgreSQL of this machine's own packages on 127.0.0.1:PORT, with its data in DIR; user postgres, no password.
# Prints "ready postgres://..." when it serves. bench calls it with a DIR in its scratch folder, and ../stop.sh DIR at the end.
set -euo pipefail
[ $# = 2 ] || { echo "usage: start.sh DIR PORT" >&2; exit 2; }
# Debian keeps the server's programs off the PATH; the newest version wins.
for bin in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V); do PATH=$bin:$PATH; done
command -v initdb postgres pg_isready >/dev/null || { echo "PostgreSQL is not installed: there is no initdb, postgres, pg_isready" >&2; exit 1; }
(umask 077 && mkdir -p "$1/data")
dir=$(cd "$1" && pwd)
as=() # the server refuses to run as root: a user namespace needs no reachable path, where it is forbidden the packages' user does it
if [ "$(id -u)" = 0 ]; then
  as=(unshare --user "--map-user=$(id -u postgres)" "--map-group=$(id -g postgres)")
  if ! "${as[@]}" true 2>/dev/null; then
    chown -R postgres "$dir"
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    "${as[@]}" test -w "$dir" || { echo "user postgres cannot reach $dir: choose a -dir whose parents others may enter" >&2; exit 1; }
  fi
fi
"${as[@]}" initdb -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
# No Unix socket: a long DIR would not fit its name.
setsid "${as[@]}" postgres -D "$dir/data" -p "$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories= </dev/null >>"$dir/log" 2>&1 &
echo $! >"$dir/pid"
for _ in $(seq 300); do
  if pg_isready -q -h 127.0.0.1 -p "$2" -U postgres; then
    echo "ready postgres://postgres@127.0.0.1:$2/postgres?sslmode=disable"
    exit 0
  fi
  kill -0 "$(cat "$dir/pid")" 2>/dev/null || break
  sleep 0.1
done
echo "the server is not ready; it said" >&2
tail -n 20 "$dir/log" >&2
exit 1
