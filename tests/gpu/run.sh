#!/bin/bash
# Runs the checks that need a GPU, from an unpacked bundle (deploy/bundle.sh) or from a build, and prints one table (see
# checks.py).
#
#   tests/gpu/run.sh [--minutes N] [CHECK|correct|fast]...
#       default: all; --list names them
#   tests/gpu/run.sh --dry-run [--minutes N] [CHECK]...
#       without a GPU: small sizes on the build's plugin with a simulated GPU
#
# Programs: $CAIRN_BIN, else bin/ of the bundle or build/release/bin. cuDNN, cuBLASLt and NVRTC are taken from Python's
# `nvidia` packages, else from the loader's own places, else from $CUDA_HOME or /usr/local/cuda. $CAIRN_PYTHON (default:
# the python3 that has torch, else any) runs the checks; they need no package but torch, for the comparison with it.
# $CAIRN_FASHION_MNIST: that data set's folder. $OUT: where logs go (checks.py). Exit 77 with the reason on a machine
# without a GPU.
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

# Folders of CUDA's libraries that the loader would not find. They precede the loader's own: first those of Python's
# packages (which match each other, and which PyTorch uses, so that both sides of a comparison use the same), then the
# prefix of the toolkit.
export CAIRN_LD_LIBRARY_PATH_BEFORE=${LD_LIBRARY_PATH:-}
add_folder() {
  case ":${LD_LIBRARY_PATH:-}:" in *":$1:"*) return ;; esac
  export LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
known_to_loader=$(ldconfig -p 2> /dev/null || true)
found_by_loader() {
  local dir
  if [[ $known_to_loader == *[[:space:]]"$1 "* ]]; then return; fi
  for dir in ${LD_LIBRARY_PATH//:/ }; do [[ ! -e $dir/$1 ]] || return 0; done
  return 1
}
of_python() {
  "$python" - "$1" << 'PY' || true
import glob, os, sys
for base in sys.path:
    for found in sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib", sys.argv[1]))):
        print(os.path.dirname(found))
        sys.exit()
PY
}
add_folder_of() {
  local library=$1 dir
  dir=$(of_python "$library")
  if [[ -n $dir && -n $python_has_cuda_13 ]]; then add_folder "$dir" && return; fi
  if found_by_loader "$library"; then return; fi
  for dir in ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib; do
    if [[ -e $dir/$library ]]; then add_folder "$dir" && return; fi
  done
  echo "run.sh: $library is nowhere: not in Python's nvidia packages, not known to the loader," \
    "not under ${CUDA_HOME:-/usr/local/cuda}" >&2
}

if [[ ${1:-} == --list ]]; then exec "$python" "$here/checks.py" --list; fi
if [[ ${1:-} == --dry-run ]]; then
  shift
  host_gpu=$(cd "$CAIRN_BIN/.." && pwd)/tests/host_gpu
  [[ -e $host_gpu/libcairn_cudnn.so ]] || skip "no $host_gpu/libcairn_cudnn.so: a dry run needs a build with its tests"
  export CAIRN_DRY=1 CAIRN_HOST_GPUS=1 CAIRN_PLUGINS=$host_gpu
  export LD_LIBRARY_PATH=$host_gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  exec "$python" "$here/checks.py" "$@"
fi
# Where container runtimes and clouds put the driver.
for dir in /usr/local/nvidia /usr/lib/wsl; do
  if [[ -d $dir/bin ]]; then PATH=$PATH:$dir/bin; fi
  for lib in "$dir/lib64" "$dir/lib"; do
    if [[ -e $lib/libcuda.so.1 ]] && ! found_by_loader libcuda.so.1; then add_folder "$lib"; fi
  done
done
export PATH
command -v nvidia-smi > /dev/null || skip "no nvidia-smi: this machine has no NVIDIA driver"
[[ $(nvidia-smi -L 2> /dev/null) == *GPU* ]] || skip "nvidia-smi names no GPU"
python_has_cuda_13=$(of_python libcublasLt.so.13)  # a cuDNN for CUDA 12 has the same file name
for library in libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9; do add_folder_of $library; done
echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
exec "$python" "$here/checks.py" "$@"
