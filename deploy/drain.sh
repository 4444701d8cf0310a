#!/bin/sh
# Takes all work off a node before it is stopped, or gives it work again: the hooks of Kubernetes' pods. The image has
# it as cairn-drain.
#
#   cairn-drain NAME SECONDS          drains the node and waits until it holds no partition and computes no replica
#   cairn-drain --undo NAME SECONDS   before a node starts that was drained under this name
#
# $CAIRN_COORDINATOR and $CAIRN_TLS_DIR as for cairn. Exit code 0: done, or there is nobody who could take the work
# (the last ps), or the node is new; 1: not within SECONDS. The node may be stopped in any case: a job then goes on as
# after a crash of the node.
set -u

undo=
if [ "${1:-}" = --undo ]; then
  undo=--undo
  shift
fi
if [ $# -ne 2 ]; then
  echo "usage: $0 [--undo] NAME SECONDS" >&2
  exit 2
fi
name=$1
deadline=$(($(date +%s) + $2))

in_time() {
  if [ "$(date +%s)" -lt "$deadline" ]; then return 0; fi
  echo "cairn-drain: $name: not within its time: $1" >&2
  exit 1
}

# Of `cairn --json nodes`: whether the node is gone, or has no partitions and no slots in use.
idle() {
  nodes=$(cairn --json nodes) || return 1
  printf '%s\n' "$nodes" | tr '{' '\n' | grep -F "\"name\":\"$name\"," > /dev/null || return 0
  printf '%s\n' "$nodes" | tr '{' '\n' | grep -F "\"name\":\"$name\"," |
    grep '"slots_used":0,' | grep '"partitions":0,' > /dev/null
}

until cairn nodes drain "$name" $undo > /dev/null; do
  code=$?
  if [ $code -eq 2 ]; then exit 0; fi  # refused, and the reason is written: unknown, or the only ps
  in_time "a coordinator answers"
  sleep 1
done
if [ -n "$undo" ]; then exit 0; fi
until idle; do
  in_time "its work is taken by others"
  sleep 1
done
