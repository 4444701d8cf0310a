#!/bin/bash
# Writes the manual pages of the programs from what their --help prints, with help2man: cairn(1), a page of each command
# (cairn-nodes-drain(1)), and those of the daemons (cairn-ps(8)).
#
#   deploy/man_pages.sh BIN OUT [PROGRAM...]      OUT/man1/cairn.1.gz, ...; of all programs, or of these
set -euo pipefail
[[ $# -ge 2 ]] || {
  echo "usage: $0 BIN OUT [PROGRAM...]" >&2
  exit 2
}
bin=$(cd "$1" && pwd) out=$2
shift 2
[[ $# -gt 0 ]] || set -- cairn cairn-coordinator cairn-ps cairn-worker
[[ -x $bin/cairn ]] || {
  echo "there is no program cairn in $bin; give the folder of built programs, such as build/release/bin" >&2
  exit 1
}
command -v help2man > /dev/null || {
  echo "help2man is not installed (deploy/install_deps.sh deploy)" >&2
  exit 1
}
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
version=$("$bin/cairn" --version)

# The words of a command's "Subcommands:".
commands_of() { sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p' <<< "$1"; }

# page SECTION PROGRAM [WORD...]: its page, then those of its commands.
page() {
  local section=$1 program=$2 help name title
  shift 2
  help=$("$bin/$program" "$@" --help)
  name=$program${*:+-$(IFS=-; echo "$*")}
  title=$(grep -v '^Usage:' <<< "$help" | head -n 1)
  {
    echo "[SEE ALSO]"
    [[ $name == cairn ]] || echo ".BR cairn (1),"
    for command in $(commands_of "$help"); do echo ".BR $name-$command ($section),"; done
    echo "/usr/share/doc/cairn/docs"
  } > "$temp/also"
  mkdir -p "$out/man$section"
  help2man --no-info --section="$section" --version-string="${version#* }" --name="${title%.}" --include="$temp/also" \
    "$bin/$program${*:+ $*}" |
    sed -e "s/^\.TH [^ ]* /.TH ${name^^} /" \
      -e "/^\.SH NAME/{n;s/^.* \\\\- /$name \\\\- /}" |
    gzip -9n > "$out/man$section/$name.$section.gz"
  for command in $(commands_of "$help"); do page "$section" "$program" "$@" "$command"; done
}

for program in "$@"; do
  section=8
  [[ $program != cairn ]] || section=1
  page "$section" "$program"
done
