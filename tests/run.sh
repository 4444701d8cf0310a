#!/bin/bash
# Installs what the tests need, builds everything and runs every test, a fixed number of inputs of every fuzz target
# included. Arguments go to ctest:
#
#   tests/run.sh                 all
#   tests/run.sh -R safetensors  those whose names match
#   tests/run.sh -L core         those without gRPC
set -euo pipefail
cd "$(dirname "$0")/.."
./deploy/install_deps.sh build test
cmake --preset release -DCAIRN_TESTS=ON -DCAIRN_FUZZ_TEST=ON > /dev/null
cmake --build --preset release
# Four tests at a time: most wait more than they compute. Threads that spin while they wait would slow the others down.
export OMP_WAIT_POLICY=passive
exec ctest --test-dir build/release --output-on-failure -j4 "$@"
