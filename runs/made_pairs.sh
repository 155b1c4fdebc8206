#!/usr/bin/env bash
# What made pairs are worth to the encoder: the same training on written requests alone, with the made ones added, with as
# many more written ones in their place, and on the made ones alone; all measured on dev.
#
#   runs/made_pairs.sh BASE OUT MADE MADE_TOOLS MADE_SERVERS TRAIN DEV TOOLS SERVERS [options of `toolscout train encoder`]
#
# BASE is a folder with the base encoder's weights; MADE is the calls.jsonl of `toolscout synth calls` with the tools and
# servers that it was made of; TRAIN, DEV, TOOLS and SERVERS are files of the data contract. Nothing is fetched. Stopped,
# the same command goes on: finished runs are not repeated.
#
# Environment: PYTHON (an interpreter with the train extra), ROWS (written requests that all share, 384), POOL (so many
# tools to search among, drawn by hash beside those that the requests name; by default all: measuring takes longest).
#
#   OUT/hand  OUT/hand_made  OUT/hand_more  OUT/made   the runs     OUT/worth.json   recall on dev of the base and of each
set -euo pipefail

if [ $# -lt 9 ]; then
  sed -n '2,14s/^# \{0,1\}//p' "$0"
  exit 2
fi
base=$1 out=$2 made=$3 made_tools=$4 made_servers=$5 train=$6 dev=$7 tools=$8 servers=$9
shift 9
python=${PYTHON:-python3}
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
mkdir -p "$out"

if [ ! -e "$out/made.jsonl" ]; then
  "$python" - "$out" "$made" "$train" "$dev" "$tools" "$made_tools" "${ROWS:-384}" "${POOL:-0}" <<'PY'
import hashlib, sys
from pathlib import Path
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, Tool

out, made, train, dev, tools, made_tools = map(Path, sys.argv[1:7])
rows, pool = map(int, sys.argv[7:9])


def drawn(items, key):
    return sorted(items, key=lambda item: hashlib.sha256(key(item).encode()).digest())


made = drawn(read_records(made, Call), lambda call: call.id)
written = drawn(read_records(train, Call), lambda call: call.id)
parts = {"hand": written[:rows], "more": written[rows : rows + len(made)]}
named = {tool for call in read_records(dev, Call) for tool in call.relevant_ids()}
named |= {gold.tool_id for part in parts.values() for call in part for gold in call.gold}
every = drawn(read_records(tools, Tool), lambda tool: tool.tool_id)
kept = [tool for tool in every if tool.tool_id in named]
if pool:
    kept += [tool for tool in every if tool.tool_id not in named][: max(0, pool - len(kept))]
write_records(out / "tools.jsonl", [*(kept if pool else every), *read_records(made_tools, Tool)])
for name, part in parts.items():
    write_records(out / f"{name}.jsonl", part)
write_records(out / "made.jsonl", made)
print(f"{len(made)} made requests, {rows} written ones, {len(kept if pool else every)} tools to search among")
PY
fi

learn() { # NAME CALLS...
  local name=$1
  shift
  if [ ! -e "$out/$name/train.json" ]; then
    "$python" -m toolscout train encoder --base "$base" --calls "${@/#/$out/}" --dev "$dev" \
      --tools "$out/tools.jsonl" --servers "$servers" "$made_servers" --epochs 1 --batch 32 \
      ${options[@]+"${options[@]}"} --out "$out/$name"
  fi
}
options=("$@")
learn hand hand.jsonl
learn hand_made hand.jsonl made.jsonl
learn hand_more hand.jsonl more.jsonl
learn made made.jsonl

"$python" - "$out" <<'PY'
import json, sys
from pathlib import Path

out = Path(sys.argv[1])
found = {name: json.loads((out / name / "train.json").read_text()) for name in ("hand", "hand_made", "hand_more", "made")}
worth = {"base": found["hand"]["dev"]["base"]} | {name: run["dev"]["trained"] for name, run in found.items()}
(out / "worth.json").write_text(json.dumps(worth, indent=2) + "\n")
for name, recall in worth.items():
    rows = found[name]["rows"]["rows"] if name in found else 0
    numbers = "  ".join(f"@{k} {recall['equivalent'][f'recall@{k}']:.3f}" for k in (1, 5, 10, 50))
    print(f"{name:<10} {rows:>5} rows   {numbers}")
PY
