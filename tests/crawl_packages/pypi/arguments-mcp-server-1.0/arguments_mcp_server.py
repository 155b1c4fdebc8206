import argparse

from mcp.runner import serve


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--database-path", required=True)
    parser.parse_args()
    serve("arguments", ["query"])
