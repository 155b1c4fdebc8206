#!/usr/bin/env bash
# Servers that do the same, side by side: seven packages of two registries in two groups (clocks and sums), each in a sandbox of its
# own, asked the same; then what their calls, texts and tools say of each, and the health that a ranking may use.
#
#   runs/similar.sh OUT
#
# OUT gets a home folder with the servers; executed.json and a folder with the gold calls as they went; servers.json, a folder
# with the comparison, and health.json. A result that is there is not made again; stopped, the same command goes on.
#
# Environment: PYTHON; K, the trials of each request (1: these servers answer alike each time).
# It needs Linux with bubblewrap, Node.js with npm, and a network to install from; started, the servers have none.
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
export TOOLSCOUT_HOME=$out/home TOOLSCOUT_STARTER=0
toolscout() { "${PYTHON:-python}" -m toolscout "$@"; }

source "$here/runs/sandboxed.bash"
add pypi:mcp-server-time 2026.10.19
add npm:time-mcp 1.0.6
add pypi:bouse-mcp-time 0.1.0
add pypi:mcp-server-calculator 0.2.1
add npm:@wrtnlabs/calculator-mcp 0.2.1
add pypi:calculator-mcp-server 0.1.1
add npm:@coo-quack/calc-mcp 2.1.1
toolscout refresh --accept

# --writes: most of these servers do not say that their tools only read. They have no network and no files to write to.
[ -e "$out/executed.json" ] ||
  toolscout eval execute --gold --calls "$here/eval/data/execute_similar.jsonl" --home "$TOOLSCOUT_HOME" --trials "${K:-1}" --writes \
    --json "$out/executed.json" --report "$out/executed"

cat > "$out/groups.json" <<'JSON'
{
  "clocks": ["mcp-server-time", "time-mcp", "bouse-mcp-time"],
  "sums": ["mcp-server-calculator", "@wrtnlabs/calculator-mcp", "calculator-mcp-server", "@coo-quack/calc-mcp"]
}
JSON
[ -e "$out/servers.json" ] ||
  toolscout eval servers --home "$TOOLSCOUT_HOME" --executed "$out/executed.json" --groups "$out/groups.json" \
    --health "$out/health.json" --json "$out/servers.json" --report "$out/servers"
