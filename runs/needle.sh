#!/usr/bin/env bash
# The retrieval experiments of RAG-MCP and MCP-Zero over whole catalogues: needle, strategies, API-Bank.
#
#   runs/needle.sh DATA OUT
#
# DATA holds mcpflow/, pairs/ and public/apibank/ in the data contract; OUT gets a JSON file and a report folder for each,
# and a cache of embeddings. A result that is there is not made again, one that was interrupted goes on. Runs on two
# cores and fetches nothing. About 5 minutes to encode 11,400 tools, once; then about 10 for the needles, 2 for the
# prompts and 2 for the dialogues: processor time, expected from runs over 1,000 tools.
#
# Environment: PYTHON; LIMIT (so many rows only); REQUESTS (structured requests of pairs/dev; the packaged ones by
# default); MODEL or MODEL_URL (without either, strategies counts prompts alone, against a context of CONTEXT tokens).
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0"
  exit 2
fi
data=$1 out=$2
here=$(cd "$(dirname "$0")/.." && pwd)
requests=${REQUESTS:-$here/eval/data/structured_dev.jsonl}
limit=(${LIMIT:+--limit "$LIMIT"})
pool=(--tools "$data/mcpflow/tools.jsonl.gz" --servers "$data/mcpflow/servers.jsonl.gz" --calls "$data/pairs/dev.jsonl.gz")
mkdir -p "$out"

measure() { # NAME COMMAND OPTIONS...
  local name=$1 command=$2
  shift 2
  [ -f "$out/$name.json" ] && { echo "$name: there already"; return; }
  "${PYTHON:-python}" -m toolscout eval "$command" "$@" ${limit[@]+"${limit[@]}"} \
    --json "$out/$name.json" --report "$out/$name" --cache "$out/vectors"
}

measure needle needle "${pool[@]}" --requests "$requests"
if [ -n "${MODEL:-}${MODEL_URL:-}" ]; then
  measure strategies strategies "${pool[@]}" ${MODEL:+--model "$MODEL"} ${MODEL_URL:+--model-url "$MODEL_URL"} \
    ${CONTEXT:+--context "$CONTEXT"}
else
  measure prompts strategies "${pool[@]}" --tokens-only --context "${CONTEXT:-32768}"
fi
measure apibank apibank --tools "$data/public/apibank/tools.jsonl.gz" --calls "$data/public/apibank/calls.jsonl.gz" \
  --extra-tools "$data/mcpflow/tools.jsonl.gz" --servers "$data/mcpflow/servers.jsonl.gz"
