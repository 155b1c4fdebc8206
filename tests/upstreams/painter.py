"""A tiny painter, standard library only: ``paint`` answers with an image, ``wipe`` destroys what was painted."""

import base64
import json
import struct
import sys
import zlib

COLORS = {"red": b"\xff\x00\x00", "green": b"\x00\xff\x00", "blue": b"\x00\x00\xff"}
TOOLS = [
    {
        "name": "paint",
        "description": "Paints a square of one color and shows the picture.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "color": {"type": "string", "enum": list(COLORS)},
                "width": {"type": "integer", "minimum": 8, "maximum": 64, "description": "In pixels."},
            },
            "required": ["color", "width"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
    {
        "name": "wipe",
        "description": "Destroys every picture painted so far.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
]
painted = 0


def png(color, width):
    """A square PNG."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    rows = (b"\x00" + COLORS[color] * width) * width
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def call(name, arguments):
    """The content of a tool's result."""
    global painted
    if name == "wipe":
        gone, painted = painted, 0
        return [{"type": "text", "text": f"{gone} pictures wiped"}]
    painted += 1
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(png(**arguments)).decode()}
    return [{"type": "text", "text": f"picture {painted}"}, image]


def answer(method, params):
    """The result of a request."""
    if method == "initialize":
        about = {"name": "painter", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/call":
        return {"content": call(params["name"], params.get("arguments") or {})}
    return {"tools": TOOLS} if method == "tools/list" else {}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in ("initialize", "ping", "tools/list", "tools/call"):
            reply["result"] = answer(message["method"], message.get("params") or {})
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        print(json.dumps(reply), flush=True)
