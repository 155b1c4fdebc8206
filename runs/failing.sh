#!/usr/bin/env bash
# Calls among servers that fail: of two servers that do the same one does not start, three ways to deal with it.
#
#   MODEL=NAME MODELS_HOME=HOME runs/failing.sh OUT
#
# OUT is one that runs/execute.sh has filled: its requests are asked. Beside the time and git servers, which stop to start once
# their tools are listed, stand "clock" and "repository", the same programs, which go on. Measured are: as it is; with servers tried
# before they are offered; and, from what the first run found out, with the servers' health in the ranking.
# A result that is there is not made again.
#
# Environment: PYTHON; MODEL (a name of `toolscout model list`); MODELS_HOME (the home folder that has pulled it).
set -euo pipefail

if [ $# -ne 1 ] || [ ! -e "$1/calls.jsonl" ] || [ -z "${MODEL:-}" ] || [ -z "${MODELS_HOME:-}" ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
fi
out=$(cd "$1" && pwd)
models=$(cd "$MODELS_HOME" && pwd)/models
python=$(command -v "${PYTHON:-python}")
toolscout() { "$python" -m toolscout "$@"; }

home() { # NAME
  export TOOLSCOUT_HOME=$out/failing/$1
  [ -e "$TOOLSCOUT_HOME/index" ] && return
  mkdir -p "$TOOLSCOUT_HOME"
  printf '#!/bin/sh\n[ -e "%s/alive" ] || exit 1\nexec "%s" -m "$1"\n' "$out/failing" "$python" > "$out/failing/twin.sh"
  chmod +x "$out/failing/twin.sh"
  touch "$out/failing/alive"
  cat > "$TOOLSCOUT_HOME/mcp.json" <<JSON
{"mcpServers": {
  "clock": {"command": "$python", "args": ["-m", "mcp_server_time"]},
  "repository": {"command": "$python", "args": ["-m", "mcp_server_git"]},
  "time": {"command": "$out/failing/twin.sh", "args": ["mcp_server_time"]},
  "git": {"command": "$out/failing/twin.sh", "args": ["mcp_server_git"]}
}}
JSON
  ln -sfn "$models" "$TOOLSCOUT_HOME/models"
  toolscout refresh --accept
}

execute() { # NAME OPTIONS...
  local name=$1
  shift
  [ -e "$out/failing/$name.json" ] && { echo "$name: there already"; return; }
  home "$name"
  rm -f "$out/failing/alive"
  toolscout eval execute --calls "$out/calls.jsonl" --home "$TOOLSCOUT_HOME" --trials 1 --model "$MODEL" "$@" \
    --json "$out/failing/$name.json" --report "$out/failing/$name-report"
}

execute plain
execute probed --set probe_offers=1
[ -e "$out/failing/health.json" ] ||
  toolscout eval servers --home "$out/failing/plain" --executed "$out/failing/plain.json" --health "$out/failing/health.json"
execute healthy --set "health=$out/failing/health.json"
