#!/bin/bash
# Packs a build into one archive that runs on any x86-64 Linux with glibc 2.36 or newer: the programs, the GPU plugin
# if it was built, and in lib/ every shared library that they need except glibc, the NVIDIA driver and CUDA's
# libraries (cuDNN and cuBLASLt must be on the target).
#
#   cmake --preset portable && cmake --build --preset portable
#   deploy/bundle.sh [BUILD] [OUT.tar.gz]     default: build/portable, build/cairn-VERSION-linux-x86_64.tar.gz
#
# Any build works (build/release): programs look for libraries in ../lib first. The archive also has docs/, examples/
# and tests/gpu/run.sh with the programs that it runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build/portable}" && pwd)
version=$(sed -n 's/^project(cairn VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name=cairn-$version-linux-x86_64
out=${2:-$root/build/$name.tar.gz}
gpu_tests=(gpu_kernels gpu_backend gpu_bench gpu_roofline)  # of tests/gpu

work=$(mktemp -d /tmp/cairn-bundle-XXXXXX)
trap 'rm -rf "$work"' EXIT
to=$work/$name
mkdir -p "$to/bin" "$to/tests/gpu" "$to/tests/integration"

if [[ -e $build/lib/libcairn_cudnn.so ]]; then
  for p in "${gpu_tests[@]}"; do
    [[ ! -x $build/bin/$p ]] || strip -o "$to/bin/$p" "$build/bin/$p"
  done
else
  echo "bundle.sh: no $build/lib/libcairn_cudnn.so: a bundle for CPUs"
fi
if [[ -d $build/tests/host_gpu ]]; then  # the plugin that runs on the CPU, for tests/gpu/run.sh --dry-run
  mkdir "$to/tests/host_gpu"
  for file in "$build"/tests/host_gpu/*.so*; do
    strip --strip-unneeded -o "$to/tests/host_gpu/$(basename "$file")" "$file"
  done
fi
"$root/deploy/collect.sh" "$build" "$to"

cp "$root/README.md" "$to/"
cp -r "$root/docs" "$root/examples" "$to/"
cp "$root"/tests/gpu/{run.sh,checks.py,checks_correct.py,checks_fast.py,programs.py,torch_peer.py} "$to/tests/gpu/"
cp "$root"/tests/integration/{cluster,command_lines,jobs}.py "$to/tests/integration/"
mkdir -p "$(dirname "$out")"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work" -cf - "$name" | gzip -6n > "$out"
echo "$out: $(du -h "$out" | cut -f1), $(ls "$to/lib" | wc -l) libraries"
