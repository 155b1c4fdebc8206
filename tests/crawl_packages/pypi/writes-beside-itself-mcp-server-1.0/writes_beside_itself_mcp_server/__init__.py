from pathlib import Path

from mcp.runner import serve


def main():
    data = Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    (data / "store.json").write_text("{}")
    serve("store", ["remember"])
