#!/usr/bin/env bash
# Shows the main job of px: runs, tests and packs a project in its sandbox. A machine without a compiler cannot build it.
# Works in a temporary directory, and removes it at the end.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d "${TMPDIR:-/tmp}/px-demo.XXXXXX")"
export PX_HOME="${PX_HOME:-$work/home}"
database=""

finish() {
  [ -z "$database" ] || "$here/postgres.sh" stop "$work/postgres" >/dev/null 2>&1 || true
  chmod -R u+w "$work" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

say "1. A uv project that needs libpq and a compiler (psycopg2 is published as source only)"
cp -R "$here/shop" "$work/shop"
cd "$work/shop"
git init -q && git add -A
git -c user.name=demo -c user.email=demo@localhost commit -qm "shop"
sed -n '/^dependencies/,/^]/p' pyproject.toml
uv lock --quiet
git add -A && git -c user.name=demo -c user.email=demo@localhost commit -qm "Lock"

say "2. Build its sandbox: Debian 12, a compiler for the build only, the system libraries it needs. No Docker, no root."
run px sync --sandbox

say "3. What is in it, and why"
run px sandbox explain

say "4. Run it"
if "$here/postgres.sh" start "$work/postgres" >"$work/postgres.log" 2>&1; then
  database=1
  dsn="$(cat "$work/postgres/dsn")"
  run px run --sandbox --env SHOP_DSN="$dsn" shop
else
  echo "(no PostgreSQL here: $(tail -n 1 "$work/postgres.log"); the app runs without its database)"
  run px run --sandbox shop
fi

say "5. Test it, in the same sandbox"
run px test --sandbox

say "6. The image that ships: the same sandbox, without the development group, with the code in it"
run px pack image --out "$work/shop.tar"
run px pack verify "$work/shop.tar"

say "Done. Your turn: cd into a uv project and try  px run --sandbox python"
