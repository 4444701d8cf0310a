#!/bin/bash
# Goal: the image and deploy/docker-compose.yml make a cluster that becomes healthy, trains a job on data mounted into
# the workers, and keeps its state when its containers are recreated. A ps whose process is killed comes back by itself
# while a job trains. Containers have no capabilities and cannot write to their image.
#
# Needs a Docker engine; starts its own (as root, with dockerd) if none is running. Exit code 77, with the reason, if
# there is none. The image contains the programs of this build ($CAIRN_BIN) instead of compiling them again;
# CAIRN_DOCKER_COMPILE=1 compiles them in the image.
set -euo pipefail
root=${CAIRN_SOURCE:?}
bin=${CAIRN_BIN:?}
work=$(mktemp -d /tmp/cairn-compose-XXXXXX)
export COMPOSE_PROJECT_NAME=cairntest$$ CAIRN_IMAGE=cairn-test:$$ COMPOSE_INTERACTIVE_NO_CLI=1
engine_pid=
compose=(docker-compose -f "$root/deploy/docker-compose.yml")

skip() {
  echo "SKIPPED: $*"
  exit 77
}

cleanup() {
  local code=$?
  if [[ $code -ne 0 && $code -ne 77 ]]; then timeout 30 "${compose[@]}" logs --tail 30 || true; fi
  timeout 60 "${compose[@]}" down --volumes --remove-orphans > /dev/null 2>&1 || true
  if [[ -n $engine_pid ]]; then
    kill -TERM "$engine_pid" 2> /dev/null || true
    wait "$engine_pid" || true
  else
    docker image rm -f "$CAIRN_IMAGE" > /dev/null 2>&1 || true
  fi
  rm -rf "$work" 2> /dev/null || true
}
trap cleanup EXIT
trap 'exit 143' TERM INT

# until_true SECONDS WHAT COMMAND...
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if ((SECONDS >= end)); then
      echo "not within its time: $what" >&2
      return 1
    fi
    sleep 0.2
  done
}
engine_answers() { timeout 10 docker info > /dev/null 2>&1; }
engine_ended_or_answers() { engine_answers || ! kill -0 "$engine_pid" 2> /dev/null; }

get_engine() {
  for program in docker docker-compose; do
    command -v $program > /dev/null || skip "$program is not installed (Debian: docker.io docker-compose)"
  done
  if engine_answers; then return; fi
  [[ $(id -u) -eq 0 ]] || skip "no Docker engine runs, and only root can start one"
  command -v dockerd > /dev/null || skip "no Docker engine runs, and dockerd is not installed"
  dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" \
    -H "unix://$work/d.sock" > "$work/dockerd.log" 2>&1 &
  engine_pid=$!
  export DOCKER_HOST=unix://$work/d.sock
  until_true 45 "the engine answers" engine_ended_or_answers || true
  engine_answers || skip "the Docker engine cannot be started here: $(tail -n 1 "$work/dockerd.log")"
}

get_base() {
  base=${CAIRN_DOCKER_BASE:-debian:12}
  if docker image inspect "$base" > /dev/null 2>&1; then return; fi
  if timeout 120 docker pull -q "$base" > /dev/null 2>&1; then return; fi
  command -v debootstrap > /dev/null || skip "$base cannot be pulled, and debootstrap is not installed to make one"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" > "$work/debootstrap.log" 2>&1 ||
    skip "$base cannot be pulled, and debootstrap failed: $(tail -n 1 "$work/debootstrap.log")"
  # Use the host's package mirror.
  cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$work/root/etc/apt/" 2> /dev/null || true
  base=cairn-base
  tar -C "$work/root" -c . | docker import - "$base" > /dev/null
  rm -rf "$work/root"
}

build_image() {
  local dockerfile=$work/Dockerfile context=$root
  cp "$root/deploy/Dockerfile" "$dockerfile"
  if [[ -z ${CAIRN_DOCKER_COMPILE:-} ]]; then
    context=$work/context
    mkdir -p "$context/deploy" "$context/programs"
    cp "$root/deploy/install_deps.sh" "$root/deploy/drain.sh" "$context/deploy/"
    for p in cairn cairn-coordinator cairn-ps cairn-worker; do strip -o "$context/programs/$p" "$bin/$p"; done
    sed -i -e '/^FROM .* AS build$/,/^$/d' -e 's|^COPY --from=build /programs|COPY programs|' "$dockerfile"
  fi
  DOCKER_BUILDKIT=0 docker build --network host --build-arg BASE="$base" -t "$CAIRN_IMAGE" -f "$dockerfile" \
    "$context" > "$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log" >&2
    return 1
  }
}

cairn() { "$bin/cairn" --coordinator "127.0.0.1:$CAIRN_PORT" "$@"; }
healthy() {
  local count
  local project=label=com.docker.compose.project=$COMPOSE_PROJECT_NAME
  count=$(docker ps --filter "$project" --filter health=healthy -q | wc -l)
  [[ $count -eq 5 ]]
}

get_engine
get_base
build_image
"$bin/cairn" data make glyphs "$work/glyph-data/glyphs" --count 1200 --test-count 200 > /dev/null
chmod a+rx "$work" && chmod -R a+rX "$work/glyph-data"
export CAIRN_DATA=$work/glyph-data
free_port='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
CAIRN_PORT=$(/usr/bin/python3 -c "$free_port")
CAIRN_HTTP_PORT=$(/usr/bin/python3 -c "$free_port")
export CAIRN_PORT CAIRN_HTTP_PORT

"${compose[@]}" up -d
until_true 300 "five healthy containers" healthy
cairn nodes
[[ $(docker run --rm "$CAIRN_IMAGE" id -u) -ne 0 ]] # the programs do not run as root
cairn submit "$root/examples/glyphs/job.textproto" --set data.path=/data/glyphs --set epochs=1 --watch
first=$(cairn --json evaluate glyphs)

# A ps is killed while another job trains.
container() { "${compose[@]}" ps -q "$1"; }
restarts() { docker inspect -f '{{.RestartCount}}' "$(container "$1")"; }
came_back() { [[ $(restarts ps-1) -ge 1 ]] && healthy && cairn health --node ps-1 > /dev/null; }
trains() { cairn jobs | grep "$1" | grep -q running; }
cairn submit "$root/examples/glyphs/job.textproto" --set data.path=/data/glyphs --set name=killed --set epochs=10000
until_true 60 "the second job trains" trains killed
kill -9 "$(docker inspect -f '{{.State.Pid}}' "$(container ps-1)")"
until_true 120 "ps-1 comes back by itself" came_back
trains killed
cairn cancel killed
if docker exec "$(container ps-0)" touch /usr/local/bin/x 2> /dev/null; then
  echo "a container can write to its image" >&2
  exit 1
fi

"${compose[@]}" down # the volumes stay
"${compose[@]}" up -d
until_true 300 "five healthy containers again" healthy
second=$(cairn --json evaluate glyphs)
[[ $first == "$second" ]] || {
  echo "before: $first, after: $second" >&2
  exit 1
}
echo "a cluster in containers trained, and kept its weights: $second"
