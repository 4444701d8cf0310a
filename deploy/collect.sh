#!/bin/bash
# Puts the programs of a build, the GPU plugin if it was built, and every shared library that they need into a folder:
# TO/bin, TO/lib, and TO/licenses with the libraries' licenses. What bundle.sh and wheel.py pack is collected here.
#
#   collect.sh BUILD TO [LIBRARY...]     LIBRARY: one that the target has, by name without .so (libstdc++)
#
# What already lies below TO gets its libraries too. Left out are glibc, the NVIDIA driver and CUDA's libraries (cuDNN
# and cuBLASLt must be on the target). Programs look for libraries in ../lib first.
set -euo pipefail
[[ $# -ge 2 ]] || {
  echo "usage: collect.sh BUILD TO [LIBRARY...]" >&2
  exit 2
}
build=$1 to=$2
shift 2

# Libraries that the target provides: glibc, the driver, CUDA.
of_target='c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec'
of_target+='|cuda|cudart|cudnn[a-z_]*|cublas|cublasLt|nccl|nvrtc|nvrtc-builtins|nvJitLink'
for library in "$@"; do
  name=${library#lib}
  of_target+="|${name//+/[+]}"
done
of_target="^(ld-linux-x86-64|lib($of_target))\.so"

mkdir -p "$to/bin" "$to/lib" "$to/licenses"
for p in cairn cairn-coordinator cairn-ps cairn-replay cairn-worker; do
  [[ -x $build/bin/$p ]] || {
    echo "collect.sh: $build/bin/$p is missing; build it, or name another build" >&2
    exit 1
  }
  strip -o "$to/bin/$p" "$build/bin/$p"
done
plugin=$build/lib/libcairn_cudnn.so
[[ ! -e $plugin ]] || strip --strip-unneeded -o "$to/lib/libcairn_cudnn.so" "$plugin"

# Lists the libraries that the loader finds here: name, file.
needed() { LD_LIBRARY_PATH= ldd "$@" 2> /dev/null | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u; }
readarray -t objects < <(find "$to" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c \
  'for f; do [ "$(head -c 4 "$f" | tail -c 3)" != ELF ] || echo "$f"; done' sh {} +)
missing=$(LD_LIBRARY_PATH= ldd "${objects[@]}" | grep 'not found' | grep -vE "^\s*${of_target#^}" | sort -u || true)
[[ -z $missing ]] || {
  echo "collect.sh: libraries missing on this machine: $missing" >&2
  exit 1
}
sources=()
while read -r library file; do
  if [[ $library =~ $of_target || $library == libcairn_cudnn.so ]]; then continue; fi
  cp -L "$file" "$to/lib/$library"
  chmod u+w "$to/lib/$library"
  strip --strip-unneeded "$to/lib/$library"
  file=$(realpath "$file")
  sources+=("$file" "${file#/usr}")  # a package may name it by either
done < <(needed "${objects[@]}")

command -v dpkg-query > /dev/null || exit 0
while IFS=: read -r package _; do
  license=/usr/share/doc/$package/copyright
  [[ ! -f $license ]] || cp -L "$license" "$to/licenses/$package"
done < <(dpkg-query -S "${sources[@]}" 2> /dev/null | sort -u)
