#!/usr/bin/env bash
# Our search beside the others, in one run: one table, one plot, over the same tools and requests.
#
#   runs/compare_search.sh OUT --tools tools.jsonl.gz --servers servers.jsonl.gz --calls calls.jsonl.gz [more options]
#
# writes OUT/peers.json and OUT/report/ (report.html, peers.png, peers.svg). More options go to `toolscout eval
# retrieval` as they are. PYTHON is the interpreter. What needs nothing but toolscout[eval] always runs; the rest where its variable says what with
# (benchmarks/rivals/README.md says how each is set up):
#
#   ENCODERS         NAME=FOLDER of plain encoders, spaces between: "minilm=... gte-small=..."
#   RIVALS_PYTHON    python with strata-mcp, toolpicker, ratel-ai, graph-tool-call
#   MCP_USE_MODEL    folder of an ONNX model for mcp-use[search] in that python, in place of the one it would download
#   SMART_PYTHON     python with smart-tool-select
#   NCP              NCP's bundle, .../dist/ncp.mjs; NODE is the node that runs it
#   RIVALS_USER      the user who runs them; without it, you do
#   RIVALS_CACHE     folder where the rivals' drivers keep vectors for the next run, writable by that user
set -euo pipefail

out=${1:?say where to write: runs/compare_search.sh OUT --tools ... --calls ...}
shift
here=$(cd "$(dirname "$0")/.." && pwd)
drivers=$here/benchmarks/rivals
mkdir -p "$out"

as=""
if [ -n "${RIVALS_USER:-}" ]; then
  home=$(getent passwd "$RIVALS_USER" | cut -d: -f6)
  as="runuser -u $RIVALS_USER -- env -C $home HOME=$home "
fi
cache=${RIVALS_CACHE:+--cache $RIVALS_CACHE}

peers=()
add() { peers+=(--peer-command "$1=$as$2"); }
if [ -n "${RIVALS_PYTHON:-}" ]; then
  add strata-mcp "$RIVALS_PYTHON $drivers/run_strata.py"
  add toolpicker "$RIVALS_PYTHON $drivers/run_toolpicker.py"
  add ratel-ai "$RIVALS_PYTHON $drivers/run_ratel.py"
  add graph-tool-call "$RIVALS_PYTHON $drivers/run_graph_tool_call.py"
fi
if [ -n "${SMART_PYTHON:-}" ]; then
  add smart-tool-select "$SMART_PYTHON $drivers/run_smart_tool_select.py"
  add smart-tool-dense "$SMART_PYTHON $drivers/run_smart_tool_select.py --mode semantic $cache"
fi
if [ -n "${RIVALS_PYTHON:-}" ] && [ -n "${MCP_USE_MODEL:-}" ]; then
  add mcp-use "$RIVALS_PYTHON $drivers/run_mcp_use.py --model $MCP_USE_MODEL $cache"
fi
if [ -n "${NCP:-}" ]; then
  add ncp "${NODE:-node} $drivers/run_ncp.mjs $NCP ${RIVALS_CACHE:-}"
fi
for encoder in ${ENCODERS:-}; do peers+=(--peer-encoder "$encoder"); done

export OMP_NUM_THREADS=1 # one thread for everybody
PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} "${PYTHON:-python3}" -m toolscout eval retrieval --peers fastmcp,fastmcp-regex,bm25s,bm25s-words,mcp-zero "${peers[@]}" \
  --json "$out/peers.json" --report "$out/report" "$@"
