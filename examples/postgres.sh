#!/usr/bin/env bash
# Starts and stops a PostgreSQL server for the demo and the tests. Usage: postgres.sh start DIR, postgres.sh stop DIR.
# The server listens on loopback and keeps its files in DIR. If PostgreSQL is missing, root gets Debian's package
# installed; other users get a message.
set -euo pipefail

action="$1" directory="$2"

binaries() { find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1; }

# The server refuses to run as root. So root runs it as the user of Debian's package.
as_user() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
  else
    "$@"
  fi
}

if [ "$action" = stop ]; then
  cd /
  as_user "$(binaries)/pg_ctl" -D "$directory/data" -m immediate stop
  exit
fi

if [ -z "$(binaries)" ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "PostgreSQL is not installed, and installing it needs root and apt-get" >&2
    exit 1
  fi
  echo "Installing Debian's postgresql for the demo's database …" >&2
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; } >&2
fi

mkdir -p "$directory"
if [ "$(id -u)" = 0 ]; then
  chmod 711 "$(dirname "$directory")"
  chown postgres "$directory"
fi
cd "$directory"
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
as_user "$(binaries)/initdb" --auth=trust --username=shop --no-sync -D "$directory/data" >"$directory.log"
as_user "$(binaries)/pg_ctl" -D "$directory/data" -w -l "$directory/log" start \
  -o "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories='' -c fsync=off" >>"$directory.log"
echo "host=127.0.0.1 port=$port user=shop dbname=postgres" >"$directory/dsn"
