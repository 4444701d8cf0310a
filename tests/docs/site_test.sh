#!/bin/bash
# docs/ becomes static pages without a warning (mkdocs build --strict), and the pages fetch nothing from elsewhere.
#
#   tests/docs/site_test.sh ROOT        77: there is no mkdocs on this machine
set -euo pipefail
cd "$1"
if ! command -v mkdocs > /dev/null; then
  echo "skipped: there is no mkdocs on this machine (Debian: apt-get install mkdocs)"
  exit 77
fi
site=$(mktemp -d /tmp/cairn-site-XXXXXX)
trap 'rm -rf "$site"' EXIT
mkdocs build --quiet --strict --site-dir "$site"
test -f "$site/operating/runbook.html"
if grep -rEl '<(script|link|img)[^>]*(src|href)="(https?:)?//' --include='*.html' "$site"; then
  echo "these pages fetch something from elsewhere" >&2
  exit 1
fi
echo "$(find "$site" -name '*.html' | wc -l) pages, $(du -sh "$site" | cut -f1)"
