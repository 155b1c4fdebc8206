#!/usr/bin/env bash
# Makes the tool encoder from data: train, export to int8 ONNX, check the export, fit the search to it, measure.
#
#   runs/train_encoder.sh BASE OUT TRAIN DEV TOOLS SERVERS [options of `toolscout train encoder`]
#
# Two rounds are better than one: STAGES=train with --epochs 1, then all stages with that run's model as BASE and as
# --miner, so that the negatives are those that the first round still gets wrong.
#
# BASE is a folder with the base encoder's weights; TRAIN, DEV, TOOLS and SERVERS are .jsonl or .jsonl.gz files of the
# data contract, or several of them in one word, separated by spaces. Nothing is fetched. Stopped, the same command goes
# on: finished stages are not repeated. DEV only measures, guards, and chooses the search's limits;
# its weights are learnt from the requests that --fit-share keeps apart.
#
# Environment: PYTHON (an interpreter with the train extra), STAGES (all five, in this order), NAME, SOURCE,
# LICENCE and LICENCE_FILE (for the encoder's card), FIT (fit.jsonl.gz of earlier rounds, whose requests fit the search
# as well), POOL and POOL_SERVERS (files of the pool to check, fit and measure over; by default TOOLS and SERVERS), EXPORT
# (more options of the export), MIN_COSINE and MAX_LOSS (what the export may cost).
#
#   OUT/run       the training run       OUT/encoder   the encoder's asset folder, with the model card
#   OUT/results   small files: train.json, card.md, export.json, parity.json, fit.json, choice.json, retrieval.json
set -euo pipefail

if [ $# -lt 6 ]; then
  sed -n '2,20s/^# \{0,1\}//p' "$0"
  exit 2
fi
base=$1 out=$2
# Several files in one word, on purpose.
read -ra train <<<"$3"
read -ra dev <<<"$4"
read -ra tools <<<"$5"
read -ra servers <<<"$6"
# The pool that is searched and measured; by default all that is trained on.
read -ra pool <<<"${POOL:-$5}"
read -ra pool_servers <<<"${POOL_SERVERS:-$6}"
read -ra apart <<<"${FIT:-}"
apart+=("$out/run/fit.jsonl.gz")
shift 6

python=${PYTHON:-python3}
stages=" ${STAGES:-train export check fit eval} "
name=${NAME:-tool-encoder}
repo=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$repo${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
mkdir -p "$out/results"
out=$(cd "$out" && pwd)
encoder=$out/encoder results=$out/results

# A stage that is wanted and whose result is not there yet; a result appears whole or not at all.
todo() { [[ $stages == *" $1 "* && ! -e $results/$2 ]]; }
keep() { mv "$results/$1.part" "$results/$1"; }

if todo train train.json; then
  "$python" -m toolscout train encoder --base "$base" --out "$out/run" \
    --calls "${train[@]}" --dev "${dev[@]}" --tools "${tools[@]}" --servers "${servers[@]}" "$@"
  if [ ! -e "$out/run/train.json" ]; then
    echo "training was stopped before its end: run the same command again" >&2
    exit 1
  fi
  cp "$out/run/README.md" "$results/card.md"
  cp "$out/run/train.json" "$results/train.json"
fi

# What the export must know of the run: its tokens and prefixes.
option() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["options"][sys.argv[2]])' "$out/run/run.json" "$1"; }

if todo export export.json; then
  "$python" -m toolscout.finetune.export_encoder "$out/run/model" "$encoder" \
    --name "$name" --source "${SOURCE:-fine-tuned by Toolscout; the card says from what}" \
    --licence "${LICENCE:-Apache-2.0}" --licence-file "${LICENCE_FILE:-$repo/index/encoders/toolscout-minilm-v5/LICENSE}" \
    --max-tokens "$(option max_tokens)" \
    --query-prefix "$(option query_prefix)" --document-prefix "$(option document_prefix)" ${EXPORT:-} \
    --nothing "$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["nothing"])' "$out/run/train.json")" > "$results/export.json.part"
  cp "$results/card.md" "$encoder/README.md"
  keep export.json
fi

# An export that costs too much fails this script, but only at its end: the other numbers say whether it matters.
failed=0
if todo check parity.json; then
  if "$python" -m toolscout.finetune.check_export "$out/run/model" "$encoder" \
    --tools "${pool[@]}" --servers "${pool_servers[@]}" --calls "${dev[@]}" "${apart[@]}" \
    --min-cosine "${MIN_COSINE:-0.99}" --max-loss "${MAX_LOSS:-0.005}" > "$results/parity.json.part"; then
    keep parity.json
  else
    failed=1
  fi
fi

if todo fit fit.json; then
  files=()
  for file in "${pool[@]}"; do files+=(--tools "$file"); done
  for file in "${pool_servers[@]}"; do files+=(--servers "$file"); done
  rm -rf "${out:?}/home"
  TOOLSCOUT_HOME=$out/home TOOLSCOUT_ENCODER=$encoder "$python" -m toolscout catalog import "${files[@]}"
  "$python" -m toolscout.finetune.fit_search "$out/home" "${apart[@]}" --choose "${dev[@]}" \
    --alike "$repo/finetune/data/answerable.jsonl" --everyday "$repo/finetune/data/everyday.jsonl" \
    --installations "$repo/finetune/data/installations.json" --encoder "$encoder" \
    --out "$encoder/search.json" > "$results/fit.json.part"
  keep fit.json
  "$python" -m toolscout.finetune.fit_choice "$encoder" "${apart[@]}" --tools "${pool[@]}" \
    --servers "${pool_servers[@]}" --check "${dev[@]}" > "$results/choice.json.part"
  keep choice.json
  rm -rf "${out:?}/home"
fi

if todo eval retrieval.json; then
  "$python" -m toolscout eval retrieval --encoder "$encoder" --cache "$out/vectors" \
    --tools "${pool[@]}" --servers "${pool_servers[@]}" --calls "${dev[@]}" --json "$results/retrieval.json.part"
  keep retrieval.json
fi
exit $failed
