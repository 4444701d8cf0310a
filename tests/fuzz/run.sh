#!/bin/bash
# Builds the fuzz targets (preset fuzz) and runs each from its seeds. A finding is printed as base64; replay it with
# `build/fuzz/fuzz/fuzz_TARGET FILE`.
#
#   tests/fuzz/run.sh
#       all targets, 4 s each, two at a time
#   CAIRN_FUZZ_SECONDS=600 tests/fuzz/run.sh csv frame
#       two of them, 10 minutes each; interesting inputs are kept in build/fuzz/corpus and used by the next run
#   tests/fuzz/run.sh --fixed [TARGET...]
#       as ctest does: as many inputs of each as tests/fuzz/runs.txt says, from the seeds alone and with a fixed random
#       seed, so that the result is reproducible
#
# Exit: 0, 1 (a finding, a target without a line in runs.txt, or the build failed), 77 (no clang with libFuzzer, so
# nothing was tested).
set -uo pipefail
seconds=${CAIRN_FUZZ_SECONDS:-4}
cd "$(dirname "$0")/../.."
build=build/fuzz
fixed=0
if [[ ${1:-} == --fixed ]]; then
  fixed=1
  shift
fi

temp=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; wait; rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM
if ! command -v clang++-14 > /dev/null; then
  echo "skipped: clang++-14 is not installed (deploy/install_deps.sh test)"
  exit 77
fi
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > "$temp/empty.cc"
if ! clang++-14 -fsanitize=fuzzer,address "$temp/empty.cc" -o "$temp/empty" 2> "$temp/errors"; then
  echo "skipped: clang++-14 has no libFuzzer (libclang-rt-14-dev): $(head -n 1 "$temp/errors")"
  exit 77
fi

# Low priority: the build and the targets use only what other processes leave.
renice -n 19 -p $$ > /dev/null
start=$SECONDS
{ cmake --preset fuzz && cmake --build --preset fuzz -j2; } > "$temp/log" 2>&1 &
wait $! || { tail -n 40 "$temp/log"; exit 1; }
"$build/fuzz/fuzz_seeds" "$temp/seeds" || exit 1
echo "built in $((SECONDS - start)) s"

# The number of inputs of a target with --fixed.
runs_of() { sed -n "s/^$1 \+\([0-9]\+\)\$/\1/p" tests/fuzz/runs.txt; }

# fuzz NAME: runs one target quietly; shows its log if it found something.
fuzz() {
  local name=$1 log=$temp/$1.log limit=() corpus=() begin=$SECONDS
  local options=(-timeout=60 -rss_limit_mb=2500 -malloc_limit_mb=1200 -print_final_stats=1)
  options+=(-artifact_prefix="$temp/$name-")
  [[ -e $temp/seeds/$name.dict ]] && options+=(-dict="$temp/seeds/$name.dict")
  mkdir -p "$temp/files/$name" "$temp/seeds/$name" "$temp/corpus/$name"
  if [[ $fixed == 1 ]]; then
    local runs
    runs=$(runs_of "$name")
    if [[ -z $runs ]]; then
      echo "$name: has no line in tests/fuzz/runs.txt: say there how many inputs ctest tries"
      return 1
    fi
    limit=(timeout -k 10 1800)  # far more than it takes, even next to other tests: a target that hangs fails
    options+=(-seed=1 -runs="$runs")
    corpus=("$temp/corpus/$name")
  else
    options+=(-max_total_time="$seconds")
    corpus=("$build/corpus/$name")
    mkdir -p "${corpus[0]}"
  fi
  if TMPDIR=$temp/files/$name UBSAN_OPTIONS=print_stacktrace=1 \
      "${limit[@]}" "$build/fuzz/fuzz_$name" "${options[@]}" "${corpus[@]}" "$temp/seeds/$name" > "$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
      "$(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1), $((SECONDS - begin)) s"
    return 0
  fi
  echo "$name: FOUND SOMETHING"
  grep -avE '^#[0-9]+|NEW_FUNC' "$log" | tail -n 60
  return 1
}

names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for source in tests/fuzz/fuzz_*.cc; do
    source=${source##*/fuzz_}
    names+=("${source%.cc}")
  done
fi
failed=0
running=0
for name in "${names[@]}"; do
  if [[ $running -ge 2 ]]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz "$name" &
  running=$((running + 1))
done
while [[ $running -gt 0 ]]; do
  wait -n || failed=1
  running=$((running - 1))
done
echo "$((SECONDS - start)) s in all, ${#names[@]} targets"
exit $failed
