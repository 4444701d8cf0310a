#!/bin/bash
# Installs the missing ones of the Debian 12 packages that Cairn needs. This is the only place that lists them.
#
#   deploy/install_deps.sh build          to build the daemons and the command line
#   deploy/install_deps.sh build test     to build and run the tests too
#   deploy/install_deps.sh deploy         to run the tests of deploy/ as well (CAIRN_DEPLOY_TESTS)
#   deploy/install_deps.sh runtime        to run programs that were built elsewhere
#   deploy/install_deps.sh --print LIST   only prints a list
set -euo pipefail

build=(
  g++ cmake ninja-build ccache pkg-config python3
  protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libabsl-dev
  librocksdb-dev
  libdnnl-dev ocl-icd-opencl-dev  # dnnl's CMake file asks for OpenCL's headers
  libspdlog-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libssl-dev
  libboost-dev liburiparser-dev prometheus-cpp-dev libisal-dev libutf8proc-dev libfarmhash-dev libre2-dev
  libturbojpeg0-dev libpng-dev zlib1g-dev
  libhdf5-dev libzip-dev libonnx-dev
  libcurl4-openssl-dev libexpat1-dev  # S3
  pybind11-dev python3-dev  # the Python module
)
test=(
  libgtest-dev libgmock-dev libbenchmark-dev libmimalloc-dev clang-14 libclang-rt-14-dev
  clang-format-14 clang-tidy-14 black
  python3-grpcio python3-protobuf python3-yaml python3-numpy python3-h5py python3-onnx
  curl openssl etcd-server help2man man-db chromium
)
deploy=(prometheus debootstrap dpkg-dev help2man)  # tests/deploy, with -DCAIRN_DEPLOY_TESTS=ON
# npm fetches onnxruntime for the tests of ONNX files, and s3rver for those of S3; node from another source includes
# npm.
command -v npm > /dev/null || test+=(nodejs npm)
bench=(python3-torch python3-torchvision libopenblas0-pthread)  # tests/bench/vs_torch
runtime=(
  libgrpc++1.51 libfmt9 libgomp1 libprotobuf32 libabsl20220623 librocksdb7.8 libdnnl2
  libturbojpeg0 libpng16-16 libxxhash0 libssl3 zlib1g libhdf5-103-1 libhdf5-hl-100 libzip4
  liburiparser1 libprometheus-cpp-core1.0 libisal2 libutf8proc2 libfarmhash0 libre2-9
  libcurl4 libexpat1 ca-certificates  # S3
)

usage() {
  echo "usage: $0 [--print] build|test|bench|deploy|runtime..." >&2
  exit 2
}

print=no
if [[ ${1:-} == --print ]]; then
  print=yes
  shift
fi
[[ $# -gt 0 ]] || usage
wanted=()
for list in "$@"; do
  case $list in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    bench) wanted+=("${bench[@]}") ;;
    deploy) wanted+=("${deploy[@]}") ;;
    runtime) wanted+=("${runtime[@]}") ;;
    *) usage ;;
  esac
done
if [[ $print == yes ]]; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "install_deps.sh: this machine has no apt; install the equivalents of: ${wanted[*]}" >&2
  exit 1
fi
missing=()
for package in "${wanted[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo > /dev/null; then
    echo "install_deps.sh: run as root, or install sudo: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null
