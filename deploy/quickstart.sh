#!/bin/bash
# From a clone to an accurate model: installs missing packages, builds, starts 1 coordinator, 2 ps and 2 workers on this
# machine, trains a small CNN on generated images, prints its accuracy and stops the cluster. A second run is quick.
#
#   deploy/quickstart.sh [--no-install]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
accuracy_min=0.97
work=$root/build/quickstart
bin=$root/build/release/bin
up_pid=

step() { printf '\n== %s\n' "$*"; }

# TERM stops the daemons in order. If the script itself is killed, they end with `cairn up`.
stop_cluster() {
  [[ -n $up_pid ]] || return 0
  kill -TERM "$up_pid" 2> /dev/null || true
  wait "$up_pid" || true
  up_pid=
}
trap stop_cluster EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

case ${1:-} in
  '') step "packages" && "$root/deploy/install_deps.sh" build ;;
  --no-install) ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac

step "build"
# A first build leaves out the tests; an existing one keeps its setting.
configure=()
[[ -f build/release/CMakeCache.txt ]] || configure=(-DCAIRN_TESTS=OFF)
cmake --preset release "${configure[@]}" > /dev/null
cmake --build --preset release --target cairn cairn-coordinator cairn-ps cairn-replay cairn-worker

step "data"
mkdir -p "$work"
if [[ ! -f $work/glyphs/complete ]]; then
  "$bin/cairn" data make glyphs "$work/glyphs" --count 12000 --test-count 2000 --seed 1
  touch "$work/glyphs/complete"
fi
"$bin/cairn" data info "$work/glyphs"

step "cluster"
rm -rf "$work/cluster"
"$bin/cairn" up --ps 2 --workers 2 --port 0 --dir "$work/cluster" > "$work/up.log" 2>&1 &
up_pid=$!
for _ in $(seq 300); do
  address=$(sed -n 's/.*coordinator \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/up.log")
  [[ -z $address ]] || break
  kill -0 "$up_pid" 2> /dev/null || break
  sleep 0.1
done
if [[ -z $address ]]; then
  cat "$work/up.log" >&2
  echo "quickstart: the cluster did not start" >&2
  exit 1
fi
cat "$work/up.log"
export CAIRN_COORDINATOR=$address

step "training"
"$bin/cairn" submit examples/glyphs/job.textproto --set "data.path=$work/glyphs" --watch

step "evaluation"
result=$("$bin/cairn" --json evaluate glyphs --split test)
accuracy=$(sed -n 's/.*"accuracy":\([0-9.e+-]*\).*/\1/p' <<< "$result")
"$bin/cairn" export glyphs -o "$work/glyphs.safetensors"

step "stopping the cluster"
stop_cluster
tail -n 1 "$work/up.log"

echo
echo "test accuracy: $accuracy"
if ! awk -v a="$accuracy" -v min="$accuracy_min" 'BEGIN { exit !(a >= min) }'; then
  echo "quickstart: the accuracy is below $accuracy_min; the logs are in $work/cluster/logs" >&2
  exit 1
fi
