#!/usr/bin/env bash
# The built-in catalog (docs/PACK.md) made anew: a crawl of the most used packages first, a pack of what they list, signed,
# and the join of the two layers fitted to it.
#
#   KEY=team.key runs/box.sh OUT
#
# OUT gets the crawl, its export, the build and the pack. Stopped, the same command goes on: each stage goes on by itself, and a
# finished one is not repeated. To crawl further after LIMIT or MINUTES remove OUT/catalog; to build anew, OUT/*.pack.sig. At the end
# pack, signature and fitted numbers are copied into the repository; packs of other days go from there.
#
# Environment: KEY (the signing key; it is made where there is none), TOOLSCOUT (the command), PYTHON (of the environment that
# it is in), PACKAGES (a file of packages, the most used first; by default those of downloads.tsv), LIMIT and MINUTES (of the
# crawl; 0: no limit), WORKERS (2), SOURCES (a folder of lines.tsv, vendors.jsonl and so on), DATE (the pack's), SHIPPED and
# LAYERS (where pack and fitted numbers are copied to; SHIPPED=none: nothing is).
# It needs Linux with bubblewrap, Node.js with npm, and a network for the crawl.
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,15s/^# \{0,1\}//p' "$0"
  exit 2
fi
repo=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
read -ra toolscout <<<"${TOOLSCOUT:-toolscout}"
sources=${SOURCES:-$repo/index/pack/sources}
key=${KEY:?names the signing key, such as team.key: it is made where there is none}
shipped=${SHIPPED:-$repo/index/pack/shipped}
layers=${LAYERS:-$repo/index/encoders/toolscout-minilm-v5/layers.json}
export TOOLSCOUT_HOME=$out/home

stage() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M)"; }
run() { "${toolscout[@]}" "$@"; }

stage "1. Crawl: the most used packages first, each listed in a sandbox, well-known ones by their recipes"
packages=${PACKAGES:-$out/packages.txt}
[ -n "${PACKAGES:-}" ] || LC_ALL=C sort -t $'\t' -k2,2nr -k1,1 "$sources/downloads.tsv" | cut -f1 > "$packages"
catalog=$out/catalog
[ -e "$catalog/tools.jsonl.gz" ] ||
  run crawl --work "$out/crawl" --packages "$packages" --in-order --limit "${LIMIT:-0}" --minutes "${MINUTES:-0}" --workers "${WORKERS:-2}" \
    --export "$catalog" --report "$out/crawl-report"

stage "2. Pack: facts, vectors and hashed words of what was listed; signed"
if [ -z "${DATE:-}" ]; then # a build that goes on keeps the day on which it began
  [ -s "$out/date" ] || date -u +%F > "$out/date"
fi
day=${DATE:-$(cat "$out/date")}
pack=$out/$day.pack
fresh=()
[ -e "$key" ] || fresh=(--new-key)
if [ ! -e "$pack.sig" ] || [ "$catalog/tools.jsonl.gz" -nt "$pack.sig" ]; then
  run catalog build-pack "$pack" --work "$out/build" --servers "$catalog/servers.jsonl.gz" --tools "$catalog/tools.jsonl.gz" \
    --sources "$sources" --date "$day" --key "$key" "${fresh[@]}"
fi

stage "3. Fit: when a person's own servers lead, and when the pack is offered at all"
[ "$out/layers.json" -nt "$pack" ] ||
  "${PYTHON:-python}" -m toolscout.finetune.fit_layers "$out/build" "$pack" --nothing "$repo/finetune/data/nothing_served.jsonl" \
    --everyday "$repo/finetune/data/generic_served.jsonl" \
    --out "$out/layers.json" > "$out/layers-report.json"

if [ "$shipped" = none ]; then
  printf '\nDone: %s, %s\n' "$pack" "$out/layers.json"
  exit
fi
stage "4. Ship: into the repository, where the wheel takes them from"
mkdir -p "$shipped"
cp "$pack" "$pack.sig" "$shipped/"
cp "$out/layers.json" "$layers"
find "$shipped" -maxdepth 1 -type f \( -name '*.pack' -o -name '*.pack.sig' \) ! -name "$day.pack" ! -name "$day.pack.sig" -delete
cat <<EOF

Done: $shipped/$day.pack and $layers. What was fitted: $out/layers-report.json
The key that signed it is to stand in $repo/index/pack/keys.txt:
  $(sed -n 's/.*"key": "\([0-9a-f]*\)".*/\1/p' "$pack.sig")
EOF
