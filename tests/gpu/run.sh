#!/bin/bash
# Runs what needs a GPU, from an unpacked bundle (deploy/bundle.sh) or from a build, and prints one table (checks.py says of what).
#
#   tests/gpu/run.sh [--minutes N] [CHECK]...           default: all; --list names them
#   tests/gpu/run.sh --dry-run [--minutes N] [CHECK]... where there is no GPU: small sizes on the build's plugin whose machine is the CPU
#
# Programs: $CAIRN_BIN, else bin/ of the bundle or build/release/bin. cuDNN and cuBLAS are taken from the loader's own places, from
# $CUDA_HOME or /usr/local/cuda, else from Python's `nvidia` packages. $CAIRN_PYTHON (default: the python3 that has torch, else any) runs the checks;
# they need no package but torch, for the comparison with it. $CAIRN_FASHION_MNIST: that data set's folder.
# Exit 77 with the reason on a machine without a GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

skip() {
  echo "SKIPPED: $*"
  exit 77
}

if [[ -z ${CAIRN_BIN:-} ]]; then
  for dir in "$root/bin" "$root/build/release/bin" "$root/build/portable/bin"; do
    [[ ! -x $dir/cairn-worker ]] || { CAIRN_BIN=$dir && break; }
  done
fi
[[ -x ${CAIRN_BIN:-}/cairn-worker ]] || {
  echo "run.sh: no cairn-worker in $root/bin or $root/build/release/bin; set CAIRN_BIN" >&2
  exit 1
}
export CAIRN_BIN CAIRN_SOURCE=$root

python=${CAIRN_PYTHON:-}
if [[ -z $python ]]; then
  for candidate in python3 /usr/bin/python3; do
    command -v "$candidate" > /dev/null || continue
    python=${python:-$candidate}
    ! "$candidate" -c 'import torch' 2> /dev/null || { python=$candidate && break; }
  done
fi
[[ -n $python ]] || skip "no python3"

# Where a library is that the loader does not find by itself.
found_by_loader() { ldconfig -p 2> /dev/null | grep -q "[[:space:]]$1 "; }
add_folder_of() {
  local library=$1 file
  if found_by_loader "$library"; then return; fi
  for dir in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib; do
    [[ ! -e $dir/$library ]] || { export LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} && return; }
  done
  file=$("$python" - "$library" << 'PY' || true
import glob, os, sys
for base in sys.path:
    for found in sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib", sys.argv[1]))):
        print(found)
        sys.exit()
PY
  )
  if [[ -n $file ]]; then
    export LD_LIBRARY_PATH=$(dirname "$file")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    echo "run.sh: $library is nowhere: not known to the loader, not under ${CUDA_HOME:-/usr/local/cuda}, not in Python's nvidia packages" >&2
  fi
}

if [[ ${1:-} == --list ]]; then exec "$python" "$here/checks.py" --list; fi
if [[ ${1:-} == --dry-run ]]; then
  shift
  host_gpu=$(cd "$CAIRN_BIN/.." && pwd)/tests/host_gpu
  [[ -e $host_gpu/libcairn_cudnn.so ]] || skip "no $host_gpu/libcairn_cudnn.so: a dry run needs a build with its tests"
  export CAIRN_DRY=1 CAIRN_HOST_GPUS=1 CAIRN_PLUGINS=$host_gpu LD_LIBRARY_PATH=$host_gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  exec "$python" "$here/checks.py" "$@"
fi
command -v nvidia-smi > /dev/null || skip "no nvidia-smi: this machine has no NVIDIA driver"
nvidia-smi -L 2> /dev/null | grep -q GPU || skip "nvidia-smi names no GPU"
for library in libcudnn.so.9 libcublasLt.so.13 libcublas.so.13; do add_folder_of $library; done
exec "$python" "$here/checks.py" "$@"
