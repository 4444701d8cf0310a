#!/bin/bash
# Goal: the systemd units are exposed to at most 3.0 by systemd's own measure, and a unit without its sandbox is found.
#
#   units_test.sh SOURCE        77: there is no systemd-analyze that judges units offline
set -euo pipefail
units=("$1"/deploy/systemd/cairn-*.service)
work=$(mktemp -d /tmp/cairn-units-XXXXXX)
trap 'rm -rf "$work"' EXIT
judge() { systemd-analyze security --offline=true --threshold=30 --no-pager "$1" > "$work/said" 2>&1; }

if ! systemd-analyze security --help 2> /dev/null | grep -q -- --offline; then
  echo "skipped: there is no systemd-analyze with --offline on this machine (Debian: apt-get install systemd)"
  exit 77
fi
for unit in "${units[@]}"; do
  judge "$unit" || { cat "$work/said"; exit 1; }
  tail -n 1 "$work/said"
done
sed '/^[A-Z][A-Za-z]*=/{/ExecStart\|User/!d}' "${units[0]}" > "$work/cairn-bare.service"
if judge "$work/cairn-bare.service"; then
  echo "a unit without a sandbox passes" >&2
  exit 1
fi
echo "${#units[@]} units"
