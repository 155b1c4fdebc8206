from mcp.server import serve


def main():
    serve("unpinned", ["old_times"])
