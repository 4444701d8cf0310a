#!/bin/bash
# Takes back certificates that deploy/make_certs.sh made, before they expire.
#
#   deploy/revoke_certs.sh DIR NAME...
#       NAME: of DIR/NAME/tls.crt, or the path of a certificate that the authority of DIR signed
#
# Writes DIR/crl.pem, the list of all that were taken back, and copies it to each DIR/*/crl.pem. Daemons use it once it
# lies next to their ca.crt (--tls-dir): copy it to the machines. Revoke a certificate before you renew it: the list has
# serial numbers, and a new certificate has a new one. DIR/revoked.* keep the list for the next run.
set -euo pipefail
set -f
umask 077

fail() {
  echo "$0: $1" >&2
  exit 2
}
[[ $# -ge 2 ]] || fail "usage: $0 DIR NAME..."
dir=$1
shift
for file in ca.key ca.crt; do
  [[ -r $dir/$file ]] || fail "$dir/$file cannot be read: DIR is a folder of make_certs.sh"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$dir/revoked.index"
[[ -e $dir/revoked.number ]] || echo 01 > "$dir/revoked.number"
cat > "$work/config" << END
[ca]
default_ca = cairn
[cairn]
database = $dir/revoked.index
crlnumber = $dir/revoked.number
default_md = sha256
default_crl_days = 3650
unique_subject = no
END
authority() { openssl ca -config "$work/config" -keyfile "$dir/ca.key" -cert "$dir/ca.crt" "$@" 2>&1; }

for name in "$@"; do
  certificate=$name
  if [[ -e $dir/$name/tls.crt ]]; then certificate=$dir/$name/tls.crt; fi
  [[ -r $certificate ]] || fail "\"$name\": there is neither $dir/$name/tls.crt nor such a file"
  openssl verify -no_check_time -partial_chain -CAfile "$dir/ca.crt" "$certificate" > /dev/null 2>&1 ||
    fail "\"$name\": $certificate is not a certificate of this authority"
  said=$(authority -revoke "$certificate") || [[ $said == *"Already revoked"* ]] || fail "\"$name\": $said"
done
said=$(authority -gencrl -out "$work/crl.pem") || fail "$said"
rm -f "$dir/revoked.index.old" "$dir/revoked.index.attr.old" "$dir/revoked.number.old"
for to in "$dir" $(set +f && cd "$dir" && for d in */tls.crt; do echo "$dir/${d%/tls.crt}"; done); do
  cp "$work/crl.pem" "$to/crl.pem.new"
  mv "$to/crl.pem.new" "$to/crl.pem"
done
echo "$dir/crl.pem: $(grep -c ^R "$dir/revoked.index") certificates are revoked; copy it to the daemons' --tls-dir"
