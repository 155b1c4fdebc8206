#!/usr/bin/env bash
# Measures the search on its data: the judged pool with ablation and structured requests, and the joined pool.
#
#   runs/measure_search.sh DATA OUT [ENCODER]
#
# DATA holds mcpflow/, crawled/, public/toucan/, public/azure_mcp/ and pairs/ in the data contract; OUT gets a result and
# a report folder for each measurement, and a cache of embeddings. ENCODER is a folder; without it the packaged one. A
# measurement whose result is there is not repeated. Runs one after the other, on any machine; nothing is fetched.
#
# Environment: PYTHON, REQUESTS (a file of structured requests, see docs/EVALUATION.md; without it that part is left
# out), LIMIT (so many rows only), TOKENIZER (a tokenizer.json).
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
fi
data=$1 out=$2
encoder=(${3:+--encoder "$3"})
requests=(${REQUESTS:+--requests "$REQUESTS"})
common=(--cache "$out/cache" --details ${LIMIT:+--limit "$LIMIT"} ${TOKENIZER:+--tokenizer "$TOKENIZER"})
python=${PYTHON:-python3}
repo=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$repo${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"

measure() {
  local name=$1
  shift
  [ -e "$out/$name.json" ] && return
  echo "== $name" >&2
  "$python" -m toolscout eval retrieval "$@" "${common[@]}" "${encoder[@]}" \
    --report "$out/$name" --json "$out/$name.json.part" | tee "$out/$name.txt"
  mv "$out/$name.json.part" "$out/$name.json"
}

dev=$data/pairs/dev.jsonl.gz train=$data/pairs/train.jsonl.gz
measure mcpflow --servers "$data/mcpflow/servers.jsonl.gz" --tools "$data/mcpflow/tools.jsonl.gz" --calls "$dev" \
  --languages --ablation --refit --exemplars "$train" "${requests[@]}"
measure joined --servers "$data"/{mcpflow,crawled}/servers.jsonl.gz \
  --tools "$data"/{mcpflow,crawled,public/toucan}/tools.jsonl.gz --calls "$dev" --languages --copies
measure azure --tools "$data/public/azure_mcp/tools.jsonl.gz" --calls "$data/public/azure_mcp/calls.jsonl.gz"
