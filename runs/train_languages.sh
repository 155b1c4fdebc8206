#!/usr/bin/env bash
# Teaches an English sentence encoder other languages, from the translated user interfaces of free software.
#
#   runs/train_languages.sh BASE OUT TOOLS [options of `toolscout train languages`]
#
# BASE is a folder with the base encoder's weights; TOOLS are .jsonl or .jsonl.gz files of the data contract, or several
# of them in one word, separated by spaces. OUT/run/model is then the base for runs/train_encoder.sh.
#
# The strings come from the Debian packages that runs/translations.txt lists (Debian 12; about 620 MB). This script
# fetches them by `apt-get download` from the sources that this machine is set up with, unless OUT/packages is filled
# already; nothing of them is installed or run. Elsewhere than on Debian, put unpacked .mo or .po files in OUT/strings
# (such as strings/PACKAGE/usr/share/locale/de/LC_MESSAGES/x.mo) and set STAGES="train".
#
# Environment: PYTHON (an interpreter with the train extra), STAGES (fetch unpack train), LIST (another package list).
set -euo pipefail

if [ $# -lt 3 ]; then
  sed -n '2,14s/^# \{0,1\}//p' "$0"
  exit 2
fi
base=$1 out=$2
# Several files in one word, on purpose.
read -ra tools <<<"$3"
shift 3

python=${PYTHON:-python3}
stages=" ${STAGES:-fetch unpack train} "
repo=$(cd "$(dirname "$0")/.." && pwd)
list=${LIST:-$repo/runs/translations.txt}
export PYTHONPATH=$repo${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
mkdir -p "$out"
out=$(cd "$out" && pwd)

if [[ $stages == *" fetch "* && ! -e $out/packages.done ]]; then
  mkdir -p "$out/packages"
  # Packages that this Debian lacks are left out; a list of one release need not fit the next.
  grep -v '^#' "$list" | while read -r package; do
    (cd "$out/packages" && compgen -G "${package}_*.deb" > /dev/null) && continue
    (cd "$out/packages" && apt-get download -qq "$package") || echo "left out: $package" >&2
  done
  touch "$out/packages.done"
fi

if [[ $stages == *" unpack "* && ! -e $out/strings.done ]]; then
  for file in "$out"/packages/*.deb; do
    name=$(basename "$file")
    mkdir -p "$out/strings/${name%%_*}"
    # tar says so when a package has none of these.
    dpkg-deb --fsys-tarfile "$file" |
      tar -x -C "$out/strings/${name%%_*}" --no-anchored --wildcards '*.mo' '*/locale/*.po' 2> /dev/null || true
  done
  touch "$out/strings.done"
fi

if [[ $stages == *" train "* && ! -e $out/run/languages.json ]]; then
  "$python" -m toolscout train languages --strings "$out/strings" --base "$base" --out "$out/run" \
    --tools "${tools[@]}" "$@"
fi
