#!/usr/bin/env bash
# Fetches a public data set, verifies its checksums and unpacks it, for use as `data.path: DIR` of a job.
#
#   deploy/fetch_dataset.sh NAME DIR        NAME: mnist, fashion-mnist, cifar10, beans, digits
#
# A file with the right checksum is not fetched again; a broken download resumes where it stopped.
#
#   CAIRN_DATASET_MIRROR=URL   fetch URL/NAME/FILE instead of the originals
#   CAIRN_DATASET_SUMS=FILE    lines "SHA256  NAME/FILE" that replace the checksums below (for a mirror that repacks)
#
# Exit codes: 0 the data set is in DIR; 1 a file could not be fetched; 2 wrong usage; 3 a wrong checksum; 4 a tool is
# missing, or DIR cannot be written.
set -euo pipefail

say() { echo "fetch_dataset: $*" >&2; }
die() { local code=$1; shift; say "$@"; exit "$code"; }

usage() {
  cat >&2 <<'END'
usage: fetch_dataset.sh NAME DIR
  mnist          70,000 grey 28x28 digits, 10 classes           11 MB   IDX
  fashion-mnist  70,000 grey 28x28 pieces of clothing, 10       30 MB   IDX
  cifar10        60,000 colour 32x32 pictures, 10              170 MB   CIFAR-10 binary
  beans          1,295 leaf photographs of 500x500, 3          180 MB   image folder
  digits         1,797 grey 8x8 digits, 10                      60 KB   CSV
END
  exit 2
}

# One line per file: name, SHA-256, then the URLs to try in order. The checksums of mnist, fashion-mnist, cifar10 and
# beans are those that TensorFlow Datasets publishes for the originals; that of digits is of a copy of scikit-learn's
# file.
files_of() {
  local mnist=https://storage.googleapis.com/cvdf-datasets/mnist
  local fashion=http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
  local ibeans=https://storage.googleapis.com/ibeans
  local beans=https://huggingface.co/datasets/AI-Lab-Makerere/beans/resolve/main/data
  case $1 in
    mnist) cat <<END
train-images-idx3-ubyte.gz 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 \
  $mnist/train-images-idx3-ubyte.gz
train-labels-idx1-ubyte.gz 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c \
  $mnist/train-labels-idx1-ubyte.gz
t10k-images-idx3-ubyte.gz 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 \
  $mnist/t10k-images-idx3-ubyte.gz
t10k-labels-idx1-ubyte.gz f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 \
  $mnist/t10k-labels-idx1-ubyte.gz
END
    ;;
    fashion-mnist) cat <<END
train-images-idx3-ubyte.gz 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 \
  $fashion/train-images-idx3-ubyte.gz
train-labels-idx1-ubyte.gz a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 \
  $fashion/train-labels-idx1-ubyte.gz
t10k-images-idx3-ubyte.gz 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 \
  $fashion/t10k-images-idx3-ubyte.gz
t10k-labels-idx1-ubyte.gz 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 \
  $fashion/t10k-labels-idx1-ubyte.gz
END
    ;;
    cifar10) cat <<END
cifar-10-binary.tar.gz c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd \
  https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
END
    ;;
    beans) cat <<END
train.zip 284fe8456ce20687f4367ae7ad94a64577e7f9fde2c2c6b1c74340ab5dc82715 \
  $ibeans/train.zip $beans/train.zip
validation.zip 90b7aa1c26d91d9afff07a30bbc67a5ea34f1f1397f068d8675be09d7d0c602d \
  $ibeans/validation.zip $beans/validation.zip
test.zip ca67b15d960d1e2fd9d23fd8498ce86818ead90755c630a43baf19ec4af09312 \
  $ibeans/test.zip $beans/test.zip
END
    ;;
    digits) cat <<END
digits.csv.gz 09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22 \
  https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.3.2/sklearn/datasets/data/digits.csv.gz
END
    ;;
    *) return 1 ;;
  esac
}

[[ $# -eq 2 && -n $1 && -n $2 ]] || usage
name=$1 dir=$2
list=$(files_of "$name") || { say "there is no data set \"$name\""; usage; }

sum_of() { sha256sum < "$1" | cut -d' ' -f1; }

# The checksum that a file must have: the user's, else ours.
wanted_sum() {
  local file=$1 sum=$2 own
  if [[ -n ${CAIRN_DATASET_SUMS:-} ]]; then
    [[ -r $CAIRN_DATASET_SUMS ]] || die 2 "CAIRN_DATASET_SUMS: $CAIRN_DATASET_SUMS cannot be read"
    own=$(awk -v f="$name/$file" '$2 == f { print $1; exit }' "$CAIRN_DATASET_SUMS")
    [[ -z $own ]] || sum=$own
  fi
  echo "$sum"
}

urls_of() {
  local file=$1; shift
  if [[ -n ${CAIRN_DATASET_MIRROR:-} ]]; then echo "${CAIRN_DATASET_MIRROR%/}/$name/$file"; else echo "$*"; fi
}

# Appends the missing rest of $1 to the file $2.
download() {
  local url=$1 part=$2 quiet=()
  if command -v curl > /dev/null; then
    [[ -t 2 ]] && quiet=(--progress-bar) || quiet=(--silent --show-error)
    curl --fail --location --connect-timeout 15 --speed-limit 1 --speed-time 60 --retry 2 --continue-at - \
      "${quiet[@]}" --output "$part" "$url"
  else
    [[ -t 2 ]] || quiet=(--no-verbose)
    wget --continue --timeout=60 --connect-timeout=15 --tries=2 "${quiet[@]}" --output-document="$part" "$url"
  fi
}

explain_by_hand() {
  say "if this machine cannot reach the originals, download them by hand on one that can, and copy them here:"
  local file sum urls
  while read -r file sum urls; do
    echo "    $(urls_of "$file" "$urls" | cut -d' ' -f1)" >&2
    echo "        as $dir/$file   (sha256 $(wanted_sum "$file" "$sum"))" >&2
  done <<< "$list"
  say "then run this command again: it checks the files and unpacks them"
}

fetch() {
  local file=$1 sum=$2 url part=$dir/$1.part resumed; shift 2
  if [[ -e $dir/$file ]]; then
    [[ $(sum_of "$dir/$file") == "$sum" ]] && return
    die 3 "$dir/$file exists, but its checksum is not $sum; remove it and run this again"
  fi
  # A download that was complete, but not renamed yet.
  if [[ -e $part && $(sum_of "$part") == "$sum" ]]; then mv "$part" "$dir/$file"; return; fi
  for url in $(urls_of "$file" "$@"); do
    for _ in 1 2; do  # the second time from the start
      resumed=no; [[ -s $part ]] && resumed=yes
      say "$file from $url"
      if download "$url" "$part"; then
        if [[ $(sum_of "$part") == "$sum" ]]; then mv "$part" "$dir/$file"; return; fi
        rm -f "$part"
        # A resumed download may have continued another file; one from the start must be right.
        [[ $resumed == yes ]] && continue
        die 3 "$url: wrong checksum (expected $sum); the download was removed. The file was changed there or in transit"
      fi
      [[ $resumed == yes ]] || break
      rm -f "$part"  # the server cannot resume a download
    done
  done
  say "$file could not be fetched"
  explain_by_hand
  exit 1
}

unpack_zip() {
  if command -v unzip > /dev/null; then unzip -q "$1" -d "$2"; else python3 -m zipfile -e "$1" "$2"; fi
}

# Unpacks into a temporary folder and renames, so that a folder with the final name is complete.
unpack() {
  local archive=$dir/$1 into=$dir/.unpack
  rm -rf "$into" && mkdir "$into"
  case $1 in
    *.tar.gz)
      tar -xzf "$archive" --no-same-owner -C "$into"
      mv "$into"/*/* "$dir/"
      ;;
    *.zip)
      unpack_zip "$archive" "$into"
      local split=${1%.zip}
      [[ -d $into/$split ]] || die 3 "$archive: has no folder $split/"
      rm -rf "${dir:?}/$split" && mv "$into/$split" "$dir/"
      ;;
  esac
  rm -rf "$into"
}

command -v curl > /dev/null || command -v wget > /dev/null || die 4 "needs curl or wget: apt-get install curl"
if [[ $list == *.zip* ]]; then
  command -v unzip > /dev/null || command -v python3 > /dev/null || die 4 "needs unzip: apt-get install unzip"
fi
mkdir -p "$dir" 2> /dev/null || die 4 "$dir cannot be written"
[[ -w $dir ]] || die 4 "$dir cannot be written"

while read -r file sum urls; do
  sum=$(wanted_sum "$file" "$sum")
  unpacked=$dir/.$file.unpacked
  [[ -e $unpacked && $(cat "$unpacked") == "$sum" ]] && continue
  fetch "$file" "$sum" "$urls"
  if [[ $file == *.tar.gz || $file == *.zip ]]; then
    unpack "$file"
    echo "$sum" > "$unpacked"
    rm -f "$dir/$file"
  fi
done <<< "$list"
say "$name is in $dir"
