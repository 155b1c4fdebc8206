#!/usr/bin/env bash
# The whole way in small: from packages of two registries to a search and a model of your own. Meant for two cores and about
# an hour; most of it is a language model writing the data, which a faster ENDPOINT shortens (docs/NUMBERS.md has a run).
#
#   runs/small.sh OUT
#
# Every stage is a command of Toolscout's that works alone, too; read this file from top to bottom as the map of the
# project. Stopped, the same command goes on: each stage goes on by itself, and a finished one is not repeated.
#
# Environment: TOOLSCOUT (the command; it needs the extras local and train), PACKAGES (a file of packages, by default
# runs/small.txt), MODEL (that writes the data) or ENDPOINT (of a model of your own that does, with CONCURRENCY requests at
# once), TOOLS, EPOCHS, STEPS and ROWS (how much is written, how often each of it is
# shown, how long is learnt, how much is measured).
# It needs Linux with bubblewrap, Node.js with npm, and a network: packages and weights come from the registries.
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,14s/^# \{0,1\}//p' "$0"
  exit 2
fi
repo=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
read -ra toolscout <<<"${TOOLSCOUT:-toolscout}"
model=${MODEL:-qwen2.5-coder-1.5b}
export TOOLSCOUT_HOME=$out/home HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

stage() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M)"; }
run() { "${toolscout[@]}" "$@"; }

stage "1. Crawl: install each package in a sandbox, start it there, list its tools"
catalogue=$out/catalogue
[ -e "$catalogue/tools.jsonl.gz" ] ||
  run crawl --work "$out/crawl" --packages "${PACKAGES:-$repo/runs/small.txt}" --export "$catalogue" --report "$out/crawl-report"
tools=$catalogue/tools.jsonl.gz servers=$catalogue/servers.jsonl.gz

stage "2. Index: scan every tool, encode it, search it"
run catalog import --servers "$servers" --tools "$tools"
run find "what time is it in another city"

stage "3. Synthesis: a local model writes requests and calls, filters drop what is poor"
if [ ! -s "$out/synth/calls.jsonl" ]; then
  address=${ENDPOINT:-}
  if [ -z "$address" ]; then
    run model pull "$model"
    coproc MODEL_SERVER { exec "${toolscout[@]}" model serve "$model" --port 0 --slots 4 --json; }
    server=$MODEL_SERVER_PID
    trap 'kill "$server" 2>/dev/null || true' EXIT
    told=
    while IFS= read -r line <&"${MODEL_SERVER[0]}"; do
      told+=$line
      if [ "$line" = "}" ]; then break; fi
    done
    address=$(sed -n 's/.*"url": "\([^"]*\)".*/\1/p' <<<"$told")
  fi
  run synth calls --tools "$tools" --servers "$servers" --out "$out/synth" --endpoint "$address" \
    --limit "${TOOLS:-24}" --instructions 2 --depth 1 --concurrency "${CONCURRENCY:-4}" --max-tokens 400
  if [ -n "${server:-}" ]; then
    kill "$server"
    wait "$server" || true
    trap - EXIT
  fi
  if [ ! -s "$out/synth/calls.jsonl" ]; then
    echo "No call outlived the filters ($out/synth/report.html says why): set MODEL to a larger model, or TOOLS to more." >&2
    exit 1
  fi
fi
run synth split --calls "$out/synth/calls.jsonl" --tools "$tools" --servers "$servers" --out "$out/split" --ratio-servers 3 --ratio-tools 3
cat "$out"/split/{seen,unseen_tool,unseen_server}.jsonl > "$out/test.jsonl"

stage "4. Training: rows from the calls, a LoRA adapter over a small model, its export"
run model pull smollm2-135m
[ -e "$out/rows.jsonl.gz" ] ||
  run train caller-rows --calls "$out/split/train.jsonl" --dev "$out/test.jsonl" --tools "$tools" --servers "$servers" \
    --unanswerable "$repo/finetune/data/unanswerable.jsonl" --epochs "${EPOCHS:-8}" --out "$out/rows.jsonl.gz"
[ -e "$out/run/train.json" ] ||
  run train caller --preset smollm2-135m --base "$TOOLSCOUT_HOME/models/SmolLM2-135M-Instruct.Q4_1.gguf" \
    --rows "$out/rows.jsonl.gz" --out "$out/run" --steps "${STEPS:-20}"
[ -e "$out/caller.gguf" ] ||
  run train caller-export --adapter "$out/run/adapter" --base "$out/run-base" --base-name smollm2-135m --gguf-adapter "$out/caller.gguf"

stage "5. Evaluation: does search find the tools, and are the calls right"
run eval retrieval --tools "$tools" --servers "$servers" --calls "$out/test.jsonl" --json "$out/retrieval.json" --report "$out/retrieval"
run eval calls --tools "$tools" --calls "$out/test.jsonl" --limit "${ROWS:-20}" --model smollm2-135m --json "$out/calls-before.json" \
  --report "$out/calls-before"
run eval calls --tools "$tools" --calls "$out/test.jsonl" --limit "${ROWS:-20}" --model "$out/caller.gguf" --json "$out/calls-after.json" \
  --report "$out/calls-after"

stage "6. Use: the model in process, behind suggest_call"
TOOLSCOUT_MODEL=$out/caller.gguf run suggest "what time is it in the time zone Europe/Lisbon"
cat <<EOF

Done. The pages to read: $out/crawl-report, $out/synth/report.html, $out/retrieval.
Your agent uses it with:
  TOOLSCOUT_HOME=$TOOLSCOUT_HOME TOOLSCOUT_MODEL=$out/caller.gguf ${toolscout[*]} serve
EOF
