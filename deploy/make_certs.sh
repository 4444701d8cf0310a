#!/bin/bash
# Makes the certificates of a cluster with TLS, signed by an authority of its own.
#
#   deploy/make_certs.sh DIR [ROLE[=NODE][+ROLE[=NODE]...]:]NAME[,NAME...]...
#       makes DIR/NAME/{ca.crt,tls.crt,tls.key} for each argument, where NAME is its first name
#
#   deploy/make_certs.sh certs host-a,10.0.0.1 host-b worker:host-c user:alice,vision admin:root
#
# Roles: coordinator, ps, worker (machines; without a role all three), user, admin (people); docs/security.md says what
# each may do. monitor, alone, has no role: it may read the pages of --http and nothing else. The names of a machine are
# those under which others dial it: host names and IP addresses; localhost and 127.0.0.1 are added. Its ps and workers
# are named NAME, or NAME- and more; with =NODE so, and with =* as they like. The further names of a person are groups;
# so are those of a person whose programs compute (user+worker:dave,vision). DIR/ca.key signs: keep it off the cluster.
# It is created if missing, so that another run adds machines or renews existing certificates. They are valid for
# CAIRN_CERT_DAYS days (365). deploy/revoke_certs.sh takes them back before that.
set -euo pipefail
set -f     # names are not patterns of files
umask 077  # only the owner may read keys

usage="usage: $0 DIR [ROLE[=NODE][+ROLE[=NODE]...]:]NAME[,NAME...]..."
fail() {
  echo "$0: $1" >&2
  exit 2
}
if [[ $# -lt 2 ]]; then
  echo "$usage" >&2
  exit 2
fi
dir=$1
shift
days=${CAIRN_CERT_DAYS:-365}
mkdir -p "$dir"
quiet() {  # runs openssl; shows what it says if it fails
  local said
  said=$("$@" 2>&1) || fail "$*: $said"
}
new_key() { quiet openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

if [[ ! -e $dir/ca.key ]]; then
  new_key "$dir/ca.key"
  openssl req -x509 -new -key "$dir/ca.key" -subj "/CN=cairn authority" -days 3650 -out "$dir/ca.crt"
fi

# A name in a URI: of a person or group 64 characters, of a node 47, behind which a kind and a number fit.
check_name() {  # WHAT NAME LENGTH
  [[ $2 =~ ^[A-Za-z0-9._@-]+$ && ${#2} -le $3 && $2 != . && $2 != .. ]] ||
    fail "$1 \"$2\": 1 to $3 of the characters A-Z a-z 0-9 . _ - @"
}
is_address() { [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$ || $1 == *:* ]]; }

for argument in "$@"; do
  roles=coordinator+ps+worker names=$argument
  if [[ $argument =~ ^([a-zA-Z][a-zA-Z]*(=[^+:,]*)?(\+[a-zA-Z][a-zA-Z]*(=[^+:,]*)?)*):[^:]*$ ]]; then
    roles=${BASH_REMATCH[1]}
    names=${argument#*:}
  fi
  first=${names%%,*}
  further=()
  if [[ $names == *,* ]]; then IFS=, read -r -a further <<< "${names#*,}"; fi
  if [[ $first =~ [^A-Za-z0-9._@:-] || -z $first || $first == . || $first == .. || ${#first} -gt 64 ]]; then
    fail "\"$first\": a name has 1 to 64 of the characters A-Z a-z 0-9 . _ - @"
  fi
  machine=no dialed=no person=no said='' alternatives=''
  IFS=+ read -r -a each <<< "$roles"
  for r in "${each[@]}"; do
    name=${first//:/.}
    if [[ $r == *=* ]]; then name=${r#*=} r=${r%%=*}; fi
    case $r in
      coordinator | ps | worker)
        machine=yes
        if [[ $r != worker ]]; then dialed=yes; fi
        [[ $name == '*' ]] || check_name "the node name of the role $r" "$name" 47
        ;;
      user | admin)
        person=yes
        check_name "the name of the role $r" "$name" 64
        ;;
      monitor)  # a certificate without a role
        [[ ${#each[@]} -eq 1 && ${#further[@]} -eq 0 ]] || fail "\"$argument\": monitor stands alone, with one name"
        person=yes
        continue
        ;;
      *) fail "\"$argument\": \"$r\" is not a role; they are coordinator, ps, worker, user, admin, monitor" ;;
    esac
    [[ " $said " != *" $r "* ]] || fail "\"$argument\": the role $r twice"
    said+=" $r"
    alternatives+=,URI:cairn://$r/$name
  done
  usage_of=clientAuth
  if [[ $person == yes && $dialed == no ]]; then
    for group in ${further[@]+"${further[@]}"}; do
      check_name "the group" "$group" 64
      alternatives+=,URI:cairn://group/$group
    done
  else
    usage_of=serverAuth,clientAuth
    alternatives+=,DNS:localhost,IP:127.0.0.1
    for name in "$first" ${further[@]+"${further[@]}"}; do
      if is_address "$name"; then
        alternatives+=,IP:$name
      elif [[ $name =~ ^[A-Za-z0-9.*_-]{1,253}$ ]]; then
        alternatives+=,DNS:$name
      else
        fail "\"$name\" is neither a host name nor an IP address"
      fi
    done
    for other in $(set +f && cd "$dir" && for d in */tls.crt; do echo "${d%/tls.crt}"; done); do
      if [[ $other == "$first"-* || $first == "$other"-* ]] && [[ $machine == yes && $roles != *=* ]]; then
        echo "$0: warning: nodes of \"$first\" and \"$other\" may take each other's names; see docs/security.md" >&2
      fi
    done
  fi
  alternatives=${alternatives#,}
  to=$dir/$first
  mkdir -p "$to"
  trap 'rm -f "$to/tls.key.new" "$to/tls.crt.new" "$to/request" "$to/extensions"' EXIT
  new_key "$to/tls.key.new"
  quiet openssl req -new -key "$to/tls.key.new" -subj "/CN=$first" -out "$to/request"
  printf 'extendedKeyUsage=%s\n' "$usage_of" > "$to/extensions"
  if [[ -n $alternatives ]]; then printf 'subjectAltName=%s\n' "$alternatives" >> "$to/extensions"; fi
  quiet openssl x509 -req -in "$to/request" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" \
    -set_serial "0x$(openssl rand -hex 16)" -days "$days" -out "$to/tls.crt.new" -extfile "$to/extensions"
  rm "$to/request" "$to/extensions"
  cp "$dir/ca.crt" "$to/ca.crt"
  mv "$to/tls.key.new" "$to/tls.key"
  mv "$to/tls.crt.new" "$to/tls.crt"
  echo "$to:${said:- monitor}: ${alternatives:-no role}, $days days"
done
