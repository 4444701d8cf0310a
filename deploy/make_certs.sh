#!/bin/bash
# Makes the certificates of a cluster with TLS, signed by an authority of its own.
#
#   deploy/make_certs.sh DIR NAME[,NAME...]...
#       makes DIR/NAME/{ca.crt,tls.crt,tls.key} for each argument, where NAME is its first name
#
#   deploy/make_certs.sh certs host-a,10.0.0.1 host-b host-c alice
#
# The names of an argument are those under which others dial that machine: host names and IP addresses; localhost and
# 127.0.0.1 are added. Users get a certificate too; their name does not matter. DIR/ca.key signs: keep it off the
# cluster. It is created if missing, so that another run adds machines or renews existing certificates. They are valid
# for CAIRN_CERT_DAYS days (365).
set -euo pipefail
umask 077  # only the owner may read keys

if [[ $# -lt 2 ]]; then
  echo "usage: $0 DIR NAME[,NAME...]..." >&2
  exit 2
fi
dir=$1
shift
days=${CAIRN_CERT_DAYS:-365}
mkdir -p "$dir"
new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2> /dev/null; }

if [[ ! -e $dir/ca.key ]]; then
  new_key "$dir/ca.key"
  openssl req -x509 -new -key "$dir/ca.key" -subj "/CN=cairn authority" -days 3650 -out "$dir/ca.crt"
fi
for names in "$@"; do
  first=${names%%,*}
  alternatives=DNS:localhost,IP:127.0.0.1
  for name in ${names//,/ }; do
    if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then alternatives+=,IP:$name; else alternatives+=,DNS:$name; fi
  done
  to=$dir/$first
  mkdir -p "$to"
  new_key "$to/tls.key.new"
  openssl req -new -key "$to/tls.key.new" -subj "/CN=$first" |
    openssl x509 -req -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
      -days "$days" -out "$to/tls.crt.new" \
      -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$alternatives") 2> /dev/null
  cp "$dir/ca.crt" "$to/ca.crt"
  mv "$to/tls.key.new" "$to/tls.key"
  mv "$to/tls.crt.new" "$to/tls.crt"
  echo "$to: $alternatives, $days days"
done
