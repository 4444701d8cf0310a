#!/bin/bash
# Builds the fuzz targets (preset fuzz) and runs each from its seeds for CAIRN_FUZZ_SECONDS, two at a time. A finding is printed as base64;
# replay it with `build/fuzz/fuzz/fuzz_TARGET FILE`. What was found interesting is kept in build/fuzz/corpus and taken up by the next run.
#
#   tests/fuzz/run.sh                                    all targets, 4 s each
#   CAIRN_FUZZ_SECONDS=600 tests/fuzz/run.sh csv frame   two of them, 10 minutes each
#
# Exit: 0, 1 (a finding, or the build failed), 77 (no clang with libFuzzer here: nothing was tested).
set -uo pipefail
seconds=${CAIRN_FUZZ_SECONDS:-4}
cd "$(dirname "$0")/../.."
build=build/fuzz

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if ! command -v clang++-14 > /dev/null; then
  echo "skipped: clang++-14 is not installed (deploy/install_deps.sh test)"
  exit 77
fi
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > "$temp/empty.cc"
if ! clang++-14 -fsanitize=fuzzer,address "$temp/empty.cc" -o "$temp/empty" 2> "$temp/errors"; then
  echo "skipped: clang++-14 has no libFuzzer (libclang-rt-14-dev): $(head -n 1 "$temp/errors")"
  exit 77
fi

start=$SECONDS
cmake --preset fuzz > "$temp/log" 2>&1 && cmake --build --preset fuzz > "$temp/log" 2>&1 || { tail -n 40 "$temp/log"; exit 1; }
"$build/fuzz/fuzz_seeds" "$temp/seeds" || exit 1
echo "built in $((SECONDS - start)) s"

# fuzz NAME: one target, quietly; its log is shown where it found something.
fuzz() {
  local name=$1 log=$temp/$1.log
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2500 -malloc_limit_mb=1200 -print_final_stats=1
                 -artifact_prefix="$temp/$name-")
  [[ -e $temp/seeds/$name.dict ]] && options+=(-dict="$temp/seeds/$name.dict")
  mkdir -p "$build/corpus/$name" "$temp/files/$name" "$temp/seeds/$name"
  if TMPDIR=$temp/files/$name UBSAN_OPTIONS=print_stacktrace=1 \
      "$build/fuzz/fuzz_$name" "${options[@]}" "$build/corpus/$name" "$temp/seeds/$name" > "$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
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
echo "$((SECONDS - start)) s in all, ${seconds} s for each of ${#names[@]} targets"
exit $failed
