#!/usr/bin/env bash
# Makes the call generator from data: rows, LoRA training, export for llama.cpp and vLLM, calls measured on DEV.
#
#   runs/train_caller.sh PRESET BASE OUT TRAIN DEV TOOLS SERVERS [options of `toolscout train caller`]
#
# PRESET is smollm2-135m, qwen2.5-coder-0.5b or qwen3-4b; BASE a GGUF file or a checkpoint folder. TRAIN, DEV, TOOLS and
# SERVERS are .jsonl or .jsonl.gz files of the data contract, or several of them in one word, separated by spaces.
# Nothing is fetched. Stopped, the same command goes on: finished stages are not repeated.
#
# Environment: PYTHON (an interpreter with the train extra), STAGES (by default: rows train export eval; `rl` between
# train and export goes on by reinforcement, and what it makes is exported), ROWS (options of
# `toolscout train caller-rows`), RL (options of `toolscout train caller --rl`), NAME (of the base, as `toolscout model
# pull` knows it), CANDIDATES and LIMIT (of the measure), LAUNCH (a launcher for several GPUs: "accelerate launch --config_file runs/accelerate.yaml").
#
#   OUT/rows.jsonl.gz   the training rows     OUT/run   the training run, with adapter/ and the model card
#   OUT/rl              the reinforcement run, with adapter/, the card, and held-out numbers before and after
#   OUT/caller.gguf     the adapter for llama.cpp, with caller.json      OUT/calls.json   what eval calls says
set -euo pipefail

if [ $# -lt 7 ]; then
  sed -n '2,17s/^# \{0,1\}//p' "$0"
  exit 2
fi
preset=$1 base=$2 out=$3
# Several files in one word, on purpose.
read -ra train <<<"$4"
read -ra dev <<<"$5"
read -ra tools <<<"$6"
read -ra servers <<<"$7"
shift 7

python=${PYTHON:-python3}
stages=" ${STAGES:-rows train export eval} "
read -ra row_options <<<"${ROWS:-}"
read -ra launch <<<"${LAUNCH:-$python}"
repo=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$repo${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
mkdir -p "$out"

# The measure runs in the process, over a base that `toolscout model pull` knows: say so before the training, not after.
if [[ $stages == *" eval "* ]] && ! "$python" -c 'import sys; from toolscout.server.models import KNOWN; sys.exit(sys.argv[1] not in KNOWN)' "${NAME:-$preset}"; then
  echo "eval needs a base that 'toolscout model pull' knows, and ${NAME:-$preset} is none: run STAGES='rows train export'," \
    "serve the adapter with 'toolscout model serve' and measure with 'toolscout eval calls --model-url'" >&2
  exit 2
fi

todo() { [[ $stages == *" $1 "* && ! -e $out/$2 ]]; }

if todo rows rows.jsonl.gz; then
  "$python" -m toolscout train caller-rows --calls "${train[@]}" --dev "${dev[@]}" --tools "${tools[@]}" \
    --servers "${servers[@]}" --unanswerable "$repo/finetune/data/unanswerable.jsonl" --out "$out/rows.jsonl.gz" \
    "${row_options[@]}"
fi

if todo train run/train.json; then
  "${launch[@]}" -m toolscout train caller --preset "$preset" --base "$base" --rows "$out/rows.jsonl.gz" \
    --out "$out/run" "$@"
  if [ ! -e "$out/run/train.json" ]; then
    echo "training was stopped before its end: run the same command again" >&2
    exit 1
  fi
fi

adapter=$out/run/adapter
if [[ $stages == *" rl "* || -e $out/rl/train.json ]]; then adapter=$out/rl/adapter; fi
if todo rl rl/train.json; then
  rl_base=$base
  if [[ $base == *.gguf ]]; then rl_base=$out/run-base; fi
  read -ra rl_options <<<"${RL:-}"
  "${launch[@]}" -m toolscout train caller --rl --preset "$preset" --base "$rl_base" --rows "$out/rows.jsonl.gz" \
    --tools "${tools[@]}" --adapter "$out/run/adapter" --out "$out/rl" ${rl_options[@]+"${rl_options[@]}"}
  if [ ! -e "$out/rl/train.json" ]; then
    echo "reinforcement was stopped before its end: run the same command again" >&2
    exit 1
  fi
fi

checkpoint=$base
if [[ $base == *.gguf ]]; then checkpoint=$out/run-base; fi
if todo export caller.gguf; then
  "$python" -m toolscout train caller-export --adapter "$adapter" --base "$checkpoint" \
    --base-name "${NAME:-$preset}" --gguf-adapter "$out/caller.gguf"
fi

if todo eval calls.json; then
  TOOLSCOUT_MODEL=$out/caller.gguf "$python" -m toolscout eval calls --tools "${tools[@]}" --calls "${dev[@]}" \
    --candidates "${CANDIDATES:-10}" ${LIMIT:+--limit "$LIMIT"} --work "$out/calls.work.jsonl" --json "$out/calls.json"
fi
