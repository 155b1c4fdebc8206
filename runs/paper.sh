#!/usr/bin/env bash
# The whole way at the scale of MCP-Flow (arXiv 2510.24284): every source, about 100,000 pairs, Qwen3-4B, GPUs, Ray.
#
#   runs/paper.sh OUT BASE
#
# BASE is the folder of the base's checkpoint (Qwen3-4B-Instruct). The stages are those of runs/small.sh, which is the
# script to read and to try first; here each has the paper's settings. Stopped, the same command goes on. STAGES names the
# stages to run (by default all), so that those for GPUs can go to another machine with the same OUT.
#
# Environment: TEACHER and JUDGE (OpenAI-compatible endpoints, for example `toolscout model serve` on other GPUs; their
# models are TEACHER_MODEL and JUDGE_MODEL), RAY (HOST:PORT of a cluster for the crawl, and for
# the synthesis, whose endpoints are then asked as each machine sees them; without one: this machine),
# MARKETPLACES (of smithery glama mcpso mcphub pulsemcp deepnlp pipedream), MAX_COST (ceiling of the synthesis, with
# PRICE_IN and PRICE_OUT for a million tokens), EXTRA_CALLS and EXTRA_TOOLS (public training sets in the data contract's
# form, files in one word with spaces between: the call generator learns from them, too), LAUNCH (how the trainer is started),
# ENCODER_BASE (folder of a sentence encoder; without it the shipped one is used), PYTHON (an interpreter with the extras),
# PORT (of the tuned model, 8000: results are of an address, so the same one is used when the command goes on).
# What is measured only where it is named: CALL_HOME (home of a Toolscout that has the servers installed, in a sandbox, 3,000
# tools at most: there calls are made for real), GAIA (its metadata.jsonl) with GAIA_SERVERS (an mcp.json: GAIA brings no
# servers), APIBANK (folder of its tools.jsonl.gz and calls.jsonl.gz), BFCL (folder of its files, version 4).
set -euo pipefail

if [ $# -ne 2 ]; then
  sed -n '2,20s/^# \{0,1\}//p' "$0"
  exit 2
fi
repo=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
base=$2
stages=" ${STAGES:-crawl index synth encoder caller eval} "
python=${PYTHON:-python3}
if [ -n "${GAIA:-}" ] && [ -z "${GAIA_SERVERS:-}" ]; then
  echo "GAIA needs servers: name an mcp.json in GAIA_SERVERS" >&2
  exit 2
fi
export PYTHONPATH=$repo${PYTHONPATH:+:$PYTHONPATH} # the agent's tasks are in the repository alone
export PYTHON=$python TOOLSCOUT_HOME=$out/home HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
tools=$out/catalogue/tools.jsonl.gz servers=$out/catalogue/servers.jsonl.gz
test=$out/test.jsonl

run() { "$python" -m toolscout "$@"; }
wanted() { [[ $stages == *" $1 "* ]] && printf '\n== %s (%s)\n' "$1" "$(date +%F' '%H:%M)"; }

# Sections 3.1 and D.1: marketplaces through the web agent, registries by their lists; every server deployed.
if wanted crawl; then
  sources=(--source registry --source npm --source pypi)
  for place in ${MARKETPLACES:-smithery glama mcpso mcphub pulsemcp deepnlp pipedream}; do sources+=(--source "$place"); done
  run crawl --work "$out/crawl" "${sources[@]}" --workers 8 ${RAY:+--ray "$RAY"} \
    --export "$out/catalogue" --report "$out/crawl-report" ${TEACHER:+--endpoint "$TEACHER"}
fi

if wanted index; then
  run catalog import --servers "$servers" --tools "$tools"
fi

# Sections 3.2, 3.3, D.3: five instructions a tool, filled, evolved to depth 2, filtered, split 12:1, 11:1, 10:1.
if wanted synth; then
  : "${TEACHER:?name the endpoint that writes the data}"
  ask=(--endpoint "$TEACHER" --model "${TEACHER_MODEL:-}" --second-endpoint "${JUDGE:-$TEACHER}" --second-model "${JUDGE_MODEL:-}"
    --max-cost "${MAX_COST:-0}" --price-in "${PRICE_IN:-0}" --price-out "${PRICE_OUT:-0}" --cache "$out/answers.db"
    ${RAY:+--ray "$RAY"})
  run synth calls --tools "$tools" --servers "$servers" --out "$out/synth" "${ask[@]}" \
    --instructions 5 --depth 2 --languages zh=0.03,de=0.01,es=0.01 --concurrency 256
  run synth plans --tools "$tools" --servers "$servers" --out "$out/plans" "${ask[@]}" --concurrency 256
  run synth split --calls "$out/synth/calls.jsonl" --tools "$tools" --servers "$servers" --out "$out/split"
  cat "$out"/split/{seen,unseen_tool,unseen_server}.jsonl > "$test"
  if [ -n "${CALL_HOME:-}" ]; then
    run synth trajectories --calls "$out/split/train.jsonl" --home "$CALL_HOME" --out "$out/trajectories" "${ask[@]}"
  fi
fi

# Ours: two rounds, the second with the first one's mistakes as negatives.
if wanted encoder && [ -n "${ENCODER_BASE:-}" ]; then
  data=("$out/split/train.jsonl" "$test" "$tools" "$servers")
  STAGES=train "$repo/runs/train_encoder.sh" "$ENCODER_BASE" "$out/encoder-1" "${data[@]}" --epochs 1
  "$repo/runs/train_encoder.sh" "$out/encoder-1/run/model" "$out/encoder" "${data[@]}" --epochs 1 \
    --miner "$out/encoder-1/run/model" --fit-share 0.08
fi
if [ -e "$out/encoder/encoder/search.json" ]; then export TOOLSCOUT_ENCODER=$out/encoder/encoder; fi

# Section 4.1: LoRA of rank 16, rate 5e-5, one epoch, as the preset has it; then, ours, rewards that programs check.
# A third of the prompts render schemas whole, and prompts fill the 8,192 tokens, as agents other than ours ask so.
if wanted caller; then
  LAUNCH=${LAUNCH:-accelerate launch --config_file $repo/runs/accelerate.yaml}
  STAGES="rows train rl export" ROWS="--styles compact=2,full=1 --budget 24000" LAUNCH=$LAUNCH NAME=qwen3-4b \
    "$repo/runs/train_caller.sh" qwen3-4b "$base" "$out/caller" "$out/split/train.jsonl ${EXTRA_CALLS:-}" "$test" "$tools ${EXTRA_TOOLS:-}" "$servers"
  read -ra launch <<<"$LAUNCH"
  rows=$out/caller/rows.jsonl.gz
  all=$(gzip -dc "$rows" | wc -l)
  for part in 10 30; do # data scaling: per cent of the rows
    "${launch[@]}" -m toolscout train caller --preset qwen3-4b --base "$base" --rows "$rows" --limit $((all * part / 100)) \
      --out "$out/caller/part$part"
  done
fi

# Every table and figure, with the tuned model behind an address of its own. `toolscout eval --help` lists the rest.
if wanted eval; then
  results=$out/results
  mkdir -p "$results"
  # What an earlier run was told must not be read before this one is.
  rm -f "$results/served.json"
  # Not by way of run: the process to end is the server itself. The agent needs the options of tool calls.
  "$python" -m toolscout model serve "base=$base" --adapter "tuned=$out/caller/rl/adapter" --adapter "whole=$out/caller/run/adapter" \
    --adapter "part10=$out/caller/part10/adapter" --adapter "part30=$out/caller/part30/adapter" --port "${PORT:-8000}" --yes --json \
    -- --enable-auto-tool-choice --tool-call-parser hermes > "$results/served.json" &
  server=$!
  trap 'kill "$server" 2>/dev/null || true' EXIT
  until grep -qs '^}' "$results/served.json"; do
    kill -0 "$server" || { echo "the model is not served: see above" >&2; exit 1; }
    sleep 5
  done
  field() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$results/served.json" "$1"; }
  address=$(field url)
  named() { grep -o "\"$1\(@[^\"]*\)\?\"" "$results/served.json" | head -1 | tr -d '"'; }
  base_model=(--model "$(named base)" --model-url "$address")
  tuned_model=(--model "$(named tuned)" --model-url "$address")
  pool=(--tools "$tools" --servers "$servers" --calls "$test")
  kept() { written=(--json "$results/$1.json" --report "$results/$1"); }

  # Search: ours beside others, part by part, in growing pools (RAG-MCP, MCP-Zero), in dialogues.
  requests=$results/requests.jsonl # as an agent words them; whoever writes them sees the request alone
  "$python" -m toolscout.eval.retrieval.structured "$test" "${base_model[@]}" --out "$requests"
  kept retrieval
  run eval retrieval "${pool[@]}" --peers fastmcp,bm25s,mcp-zero --ablation --requests "$requests" "${written[@]}"
  kept needle
  run eval needle "${pool[@]}" --requests "$requests" "${written[@]}"
  if [ -n "${APIBANK:-}" ]; then
    kept apibank
    run eval apibank --tools "$APIBANK/tools.jsonl.gz" --calls "$APIBANK/calls.jsonl.gz" \
      --extra-tools "$tools" --servers "$servers" "${written[@]}"
  fi

  if [ -n "${BFCL:-}" ]; then
    questions=() answers=()
    for part in simple_python multiple parallel parallel_multiple irrelevance; do questions+=("$BFCL/BFCL_v4_$part.json"); done
    for part in simple_python multiple parallel parallel_multiple; do answers+=("$BFCL/possible_answer/BFCL_v4_$part.json"); done
    run eval adopt bfcl --questions "${questions[@]}" --answers "${answers[@]}" --out "$out/bfcl"
  fi
  for name in base tuned; do
    who=("${base_model[@]}")
    if [ "$name" = tuned ]; then who=("${tuned_model[@]}"); fi
    for candidates in 10 100; do # Tables 3 and 4
      kept "calls-$name-$candidates"
      run eval calls --tools "$tools" --calls "$test" --candidates "$candidates" "${who[@]}" "${written[@]}"
    done
    kept "sizes-$name" # by number of candidates
    run eval calls --tools "$tools" --calls "$test" --limit 500 --compare candidates "${who[@]}" "${written[@]}"
    kept "exemplars-$name" # Figure 5
    run eval calls --tools "$tools" --calls "$test" --limit 500 --compare exemplars --exemplars "$out/split/train.jsonl" \
      --any-tool "${who[@]}" "${written[@]}"
    if [ -n "${BFCL:-}" ]; then
      kept "bfcl-$name"
      run eval calls --tools "$out/bfcl/tools.jsonl" --calls "$out/bfcl/calls.jsonl" "${who[@]}" "${written[@]}"
    fi
    kept "strategies-$name"
    run eval strategies "${pool[@]}" --limit 500 "${who[@]}" "${written[@]}"
    kept "plan-$name"
    run eval plan --tools "$tools" --calls "$out/plans/plans.jsonl" --limit 500 "${who[@]}" "${written[@]}"
    if [ -n "${CALL_HOME:-}" ]; then
      kept "execute-$name"
      run eval execute --calls "$test" --home "$CALL_HOME" "${who[@]}" ${JUDGE:+--judge-url "$JUDGE"} \
        ${JUDGE_MODEL:+--judge-model "$JUDGE_MODEL"} "${written[@]}"
    fi
    # Section 4.4, Figure 8: the agent alone, with search, and with the first call written for it by the tuned model.
    kept "agent-$name"
    run eval agent "${who[@]}" --caller "$(named tuned)" --caller-url "$address" \
      ${GAIA:+--gaia "$GAIA" --servers "$GAIA_SERVERS"} "${written[@]}"
  done

  # Section B.1: servers that do the same side by side, and what that installation is worth.
  if [ -n "${CALL_HOME:-}" ]; then
    kept servers
    run eval servers --home "$CALL_HOME" --executed "$results/execute-base.json" "$results/execute-tuned.json" \
      --health "$results/health.json" "${written[@]}"
    kept setup
    run eval setup --home "$CALL_HOME" "${written[@]}"
  fi

  for name in part10 part30 whole; do
    kept "calls-$name"
    run eval calls --tools "$tools" --calls "$test" --model "$(named "$name")" --model-url "$address" "${written[@]}"
  done
  run eval scaling --runs "0=$results/calls-base-10.json" "0.1=$results/calls-part10.json" "0.3=$results/calls-part30.json" \
    "1=$results/calls-whole.json" --json "$results/scaling.json" --report "$results/scaling"
  kill "$server"
  wait "$server" || true
fi
