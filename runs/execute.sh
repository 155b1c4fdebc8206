#!/usr/bin/env bash
# Calls made for real, at servers that come with Toolscout (time and git): 30 requests whose outcomes can be checked.
#
#   runs/execute.sh OUT
#
# OUT gets a home folder with the starter servers, a small git repository to ask about, and for the gold calls and each
# model a JSON file and a report folder. A result that is there is not made again. Each request is tried K times.
#
# Environment: PYTHON; K (5); MODELS (names of `toolscout model list`, blanks between; without any the gold calls alone are
# made) and MODELS_HOME, the home folder that has pulled them; PROBE=1: each model once more, servers tried before offered;
# TEMPERATURE (0.7, say): once more with trials that differ; JUDGE_URL: an endpoint that judges beside the checks; SANDBOX=1: the
# servers in bubblewrap, without a network and with no files but the repository, which they can read.
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
export TOOLSCOUT_HOME=$out/home
toolscout() { "${PYTHON:-python}" -m toolscout "$@"; }

repo=$out/repository
if [ ! -e "$out/calls.jsonl" ]; then
  rm -rf "$repo"
  git init -q -b main "$repo"
  commit() { # MESSAGE DAY
    GIT_AUTHOR_DATE="$2T09:00:00+00:00" GIT_COMMITTER_DATE="$2T09:00:00+00:00" \
      git -C "$repo" -c user.name="Mara Lind" -c user.email=mara@example.org -c commit.gpgsign=false commit -q -m "$1"
  }
  printf 'high 04:12\nlow 10:31\n' > "$repo/tides.txt"
  printf 'ferry at 07:30\n' > "$repo/notes.txt"
  git -C "$repo" add .
  commit "Add the tide tables" 2026-03-02
  git -C "$repo" tag v1
  git -C "$repo" checkout -q -b lighthouse
  printf 'open from May to September\n' > "$repo/hours.txt"
  git -C "$repo" add .
  commit "Write down the lighthouse's hours" 2026-03-09
  git -C "$repo" checkout -q main
  printf 'high 04:21\nlow 10:31\n' > "$repo/tides.txt"
  git -C "$repo" add .
  commit "Correct the tide of 14 April" 2026-04-15
  printf 'ferry at 07:40\n' > "$repo/notes.txt"
  printf 'Moorings: 12\n' > "$repo/harbour.md"
  git -C "$repo" add harbour.md
  sed "s#{repo}#$repo#g" "$here/eval/data/execute_starter.jsonl" > "$out/calls.jsonl"
fi
if [ ! -e "$TOOLSCOUT_HOME/mcp.json" ] && [ -n "${SANDBOX:-}" ]; then
  mkdir -p "$TOOLSCOUT_HOME"
  # Another user runs them in there, and git wants to be told that the folder is trusted all the same.
  "${PYTHON:-python}" - "$repo" > "$TOOLSCOUT_HOME/mcp.json" <<'PY'
import json, sys

own = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
time = {"command": sys.executable, "args": ["-m", "mcp_server_time"], "sandbox": {"read": own}}
git = {"command": sys.executable, "args": ["-m", "mcp_server_git"], "env": trust, "sandbox": {"read": [*own, sys.argv[1]]}}
print(json.dumps({"mcpServers": {"time": time, "git": git}}, indent=2))
PY
fi
[ -e "$TOOLSCOUT_HOME/mcp.json" ] || toolscout add starter --yes
if [ -n "${MODELS_HOME:-}" ] && [ ! -e "$TOOLSCOUT_HOME/models" ]; then ln -s "$(cd "$MODELS_HOME" && pwd)/models" "$TOOLSCOUT_HOME/models"; fi
toolscout refresh --accept

execute() { # NAME OPTIONS...
  local name=$1
  shift
  [ -e "$out/$name.json" ] && { echo "$name: there already"; return; }
  toolscout eval execute --calls "$out/calls.jsonl" --home "$TOOLSCOUT_HOME" --trials "${K:-5}" "$@" \
    --json "$out/$name.json" --report "$out/$name"
}

judge=(${JUDGE_URL:+--judge-url "$JUDGE_URL"})
execute gold --gold ${judge[@]+"${judge[@]}"}
for model in ${MODELS:-}; do
  execute "$model" --model "$model" ${judge[@]+"${judge[@]}"}
  [ -z "${TEMPERATURE:-}" ] || execute "$model-at-$TEMPERATURE" --model "$model" --set "model_temperature=$TEMPERATURE"
  [ -z "${PROBE:-}" ] || execute "$model-probed" --model "$model" --set probe_offers=1
done
