#!/bin/bash
# Goal: each command has a manual page that says what its --help says, and groff has nothing to say against it.
#
#   man_pages_test.sh SOURCE BIN        77: no help2man or no man
set -euo pipefail
source=$1 bin=$2
for tool in help2man man; do
  command -v "$tool" > /dev/null || {
    echo "skipped: $tool is not installed (deploy/install_deps.sh test)"
    exit 77
  }
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$source/deploy/man_pages.sh" "$bin" "$out"

# shown PAGE: as a reader sees it, without what justifies lines.
shown() { MANWIDTH=400 LC_ALL=C.UTF-8 man --no-hyphenation --no-justification -P cat -l "$1" | tr -s ' '; }
fail() {
  echo "$*" >&2
  exit 1
}

count=0
check() {
  local section=$1 program=$2 help page text warnings
  shift 2
  help=$("$bin/$program" "$@" --help)
  page=$out/man$section/$program${*:+-$(IFS=-; echo "$*")}.$section.gz
  [[ -s $page ]] || fail "there is no page of: $program $*"
  warnings=$(LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 > /dev/null)
  [[ -z $warnings ]] || fail "$page: $warnings"
  text=$(shown "$page")
  grep -qF "$program${*:+-$(IFS=-; echo "$*")} - " <<< "$text" || fail "$page: apropos does not find its name"
  for flag in $(grep -oE '^  (-[a-z],)?--[a-z][a-z-]*' <<< "$help" | grep -oE -- '--[a-z-]+'); do
    grep -qF -- "$flag" <<< "$text" || fail "$page: lacks $flag"
  done
  count=$((count + 1))
  for command in $(sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p' <<< "$help"); do
    grep -qF "$command" <<< "$text" || fail "$page: lacks $command"
    check "$section" "$program" "$@" "$command"
  done
}
check 1 cairn
for role in coordinator ps worker; do check 8 "cairn-$role"; done
[[ $count -gt 20 ]] || fail "only $count pages"
[[ $count -eq $(find "$out" -name '*.gz' | wc -l) ]] || fail "pages of no command: $(ls "$out"/man*)"
if "$source/deploy/man_pages.sh" "$out" "$out/none" 2> /dev/null; then fail "a folder without programs has pages"; fi
echo "$count pages"
