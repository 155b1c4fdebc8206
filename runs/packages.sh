#!/usr/bin/env bash
# Calls made for real, at other people's servers: nine packages of two registries, each in a sandbox of its own, and 39 requests
# whose outcomes can be checked.
#
#   runs/packages.sh OUT
#
# OUT gets a home folder with the servers, and for the gold calls and each model a JSON file and a report folder. A result that
# is there is not made again; stopped, the same command goes on.
#
# Environment: PYTHON; K, the trials of each request (1); MODELS (names of `toolscout model list`, blanks between; without any
# the gold calls alone are made) and MODELS_HOME, the home folder that has pulled them; TEMPERATURE (0.7, say): each model once
# more with trials that differ; JUDGE_URL: an endpoint that judges beside the checks.
# It needs Linux with bubblewrap, Node.js with npm, and a network to install from; started, the servers have none.
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,13s/^# \{0,1\}//p' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
export TOOLSCOUT_HOME=$out/home TOOLSCOUT_STARTER=0
toolscout() { "${PYTHON:-python}" -m toolscout "$@"; }

source "$here/runs/sandboxed.bash"
add pypi:mcp-server-calculator 0.2.1
add npm:gis-dataconversion-mcp 1.0.3
add pypi:mcp-cryptography 0.1.1
add pypi:clinical-calc-mcp 0.1.0
add npm:@foxdavidson/property-mortgage-mcp 0.2.0
add npm:apivalidator-mcp-server 1.0.3
add pypi:oyemi-mcp 0.1.0 --with 'mcp<2'
add pypi:time-mcp 0.2.1
add npm:eleata-einvoice-mcp 0.1.1
if [ -n "${MODELS_HOME:-}" ] && [ ! -e "$TOOLSCOUT_HOME/models" ]; then ln -s "$(cd "$MODELS_HOME" && pwd)/models" "$TOOLSCOUT_HOME/models"; fi
toolscout refresh --accept

execute() { # NAME OPTIONS...
  local name=$1
  shift
  [ -e "$out/$name.json" ] && { echo "$name: there already"; return; }
  # --writes: most of these servers do not say that their tools only read. They have no network and no files to write to.
  toolscout eval execute --calls "$here/eval/data/execute_packages.jsonl" --home "$TOOLSCOUT_HOME" --trials "${K:-1}" --writes "$@" \
    ${JUDGE_URL:+--judge-url "$JUDGE_URL"} --json "$out/$name.json" --report "$out/$name"
}

execute gold --gold
for model in ${MODELS:-}; do
  execute "$model" --model "$model"
  [ -z "${TEMPERATURE:-}" ] || execute "$model-at-$TEMPERATURE" --model "$model" --set "model_temperature=$TEMPERATURE"
done
