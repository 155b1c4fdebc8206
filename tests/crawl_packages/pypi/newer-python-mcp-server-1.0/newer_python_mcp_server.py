import sys

from mcp.runner import serve


def main():
    serve("newer", [f"python_{sys.version_info[0]}_{sys.version_info[1]}"])
