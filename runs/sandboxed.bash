# For the scripts that run other people's servers: adds one in a sandbox of its own, unless it is there.

add() { # PACKAGE VERSION OPTIONS...
  local package=$1 version=$2 between=@
  shift 2
  [ "${package%%:*}" = npm ] || between===
  grep -qsF "\"${package#*:}\": {" "$TOOLSCOUT_HOME/mcp.json" ||
    toolscout add "$package$between$version" --name "${package#*:}" --sandbox --yes "$@"
}
