#!/bin/bash
# Goal: Cairn builds without a CUDA toolkit: with -DCAIRN_CUDA=OFF the worker is built without the plugin and says so.
# It compiles the same files as this build, so with ccache it takes seconds. The build stays in build/no_cuda for the
# next time.
set -euo pipefail
root=${CAIRN_SOURCE:?}
build=$root/build/no_cuda
if ! command -v ccache > /dev/null; then
  echo "SKIPPED: no ccache: everything would be compiled again"
  exit 77
fi
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE="${CAIRN_BUILD_TYPE:-Release}" \
  -DCAIRN_UNITY="${CAIRN_UNITY:-OFF}" -DCAIRN_CUDA=OFF -DCAIRN_TESTS=OFF -DCAIRN_BENCH=OFF > "$build.log"
cmake --build "$build" --target cairn-worker -- -j2 > "$build.log" || {
  tail -n 30 "$build.log" >&2
  exit 1
}
cmake --build "$build" -- -n > "$build.log"
if grep -i 'nvcc\|libcairn_cudnn\.so' "$build.log" >&2; then exit 1; fi  # what would still be built
code=0
said=$(env -u CAIRN_PLUGINS "$build/bin/cairn-worker" --coordinator 127.0.0.1:1 --device gpu 2>&1) || code=$?
[[ $code -eq 2 && $said == *"--device=gpu: no libcairn_cudnn.so in "* ]] || {
  echo "exit $code: $said" >&2
  exit 1
}
echo "$said"
