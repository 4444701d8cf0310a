#!/bin/bash
# Goal: the Debian packages of a build install on a bare Debian 12 with nothing but what they depend on; there a cluster
# starts, an example is trained from where the package puts it, the Python module is there, a coordinator beyond
# loopback is refused without certificates, one with those of the package's script answers, and removing works.
#
#   packages_test.sh SOURCE BUILD        77: no dpkg-dev, no debootstrap, not root, or no packages to be had
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d /tmp/cairn-packages-XXXXXX)
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT
skip() {
  echo "skipped: $*"
  exit 77
}
# In the bare system, with processes and mounts of its own, which end with it.
inside() {
  unshare --mount --pid --fork --kill-child -- bash -c \
    'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /bin/bash -euo pipefail -c "$1"' \
    "$root" "$1"
}

command -v dpkg-shlibdeps > /dev/null || skip "dpkg-dev is not installed (deploy/install_deps.sh test)"
(cd "$build" && cpack -G DEB -B "$work/packages" > "$work/cpack.log") || {
  tail -n 20 "$work/cpack.log" >&2
  exit 1
}
for name in cairn cairn-daemons; do test -f "$work"/packages/${name}_*.deb; done
dpkg-deb -x "$work"/packages/cairn-daemons_*.deb "$work/daemons"
for role in coordinator ps worker; do
  program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$work/daemons/usr/lib/systemd/system/cairn-$role.service")
  test -x "$work/daemons/usr/bin/$program" || {
    echo "cairn-$role.service starts $program, which the package does not have" >&2
    exit 1
  }
done
dpkg-deb -x "$work"/packages/cairn_*.deb "$work/cli"
diff -r "$source/examples" "$work/cli/usr/share/doc/cairn/examples"
for page in cli/usr/share/man/man1/cairn{,-submit,-nodes-drain}.1.gz \
    daemons/usr/share/man/man8/cairn-{coordinator,ps,worker}.8.gz \
    cli/usr/share/bash-completion/completions/cairn cli/usr/share/zsh/vendor-completions/_cairn \
    cli/usr/share/fish/vendor_completions.d/cairn.fish; do
  test -s "$work/$page" || {
    echo "the packages lack ${page#*/}" >&2
    exit 1
  }
done
echo "packages: $(cd "$work/packages" && ls ./*.deb | tr '\n' ' ')"

[[ $(id -u) -eq 0 ]] || skip "only root can install packages on a bare system"
command -v debootstrap > /dev/null || skip "debootstrap is not installed (deploy/install_deps.sh test)"
debootstrap --variant=minbase bookworm "$root" > "$work/debootstrap.log" 2>&1 ||
  skip "debootstrap makes no bare system here: $(tail -n 1 "$work/debootstrap.log")"
rm -f "$root/etc/apt/sources.list"
cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/" 2> /dev/null || true  # this machine's mirror
cp /etc/resolv.conf "$root/etc/"
cp "$work"/packages/*.deb "$root/tmp/"
inside 'export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends /tmp/cairn*.deb /tmp/python3-cairn*.deb' > "$work/apt.log" 2>&1 || {
  tail -n 20 "$work/apt.log" >&2
  exit 1
}
inside 'getent passwd cairn > /dev/null
  cd /tmp
  cairn data make glyphs data/glyphs --count 1200 --test-count 200
  cairn up --port 0 --ps 2 --workers 1 > up.log 2>&1 &
  for _ in $(seq 600); do grep -q ready up.log && break || sleep 0.1; done
  export CAIRN_COORDINATOR=$(sed -n "s/.*coordinator \([0-9.:]*\).*/\1/p" up.log)
  job=/usr/share/doc/cairn/examples/glyphs/job.textproto
  cairn submit $job --set data.path=/tmp/data/glyphs --set epochs=1 --watch
  python3 -c "import cairn, os; print(\"from Python:\", cairn.__file__)"
  kill %1 && wait %1
  cairn-make-certs certs 127.0.0.1 user:alice
  timeout 10 cairn-coordinator --listen 0.0.0.0:0 --data-dir state 2> refused.log && exit 1
  grep -q -- --insecure refused.log
  cairn-coordinator --listen 127.0.0.1:0 --data-dir state --tls-dir certs/127.0.0.1 2> coordinator.log &
  for _ in $(seq 600); do grep -q "listening on" coordinator.log && break || sleep 0.1; done
  export CAIRN_COORDINATOR=$(sed -n "s/.*listening on \([0-9.:]*\),.*/\1/p" coordinator.log)
  CAIRN_TLS_DIR=certs/alice cairn jobs
  kill $! && wait $!'
inside 'apt-get -qq purge -y cairn cairn-daemons python3-cairn > /dev/null; ! command -v cairn-ps'
echo "installed, used and removed on a bare system"
