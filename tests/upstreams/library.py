"""A small library as an MCP server, standard library only: results in every form that references and causes care for.

    python library.py [--log FILE] [--pause SECONDS]

The log has a line for each call that arrives, before it is answered: ``<tool> <arguments as JSON>``.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--log")
parser.add_argument("--pause", type=float, default=0.0)
options = parser.parse_args()
lock = threading.Lock()


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tool(name, description, properties, **annotations):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("search_books", "Searches the catalogue of books.", {"query": TEXT}, readOnlyHint=True),
    tool("get_book", "Gets what is known of a book.", {"book_id": TEXT}, readOnlyHint=True),
    tool("describe_shelf", "Describes a shelf in words.", {"shelf": NUMBER}),
    tool("find_keeper", "Finds a keeper's extension.", {"name": TEXT}),
    tool("get_loans", "Lists a reader's loans.", {"reader": TEXT}),
    tool("get_page", "Gets a page of a book.", {"characters": NUMBER}),
    tool("get_crash", "Reads what brings the server down.", {}),
    tool("get_nap", "Reads slowly.", {}),
    tool("delete_book", "Deletes a book.", {"book_id": TEXT}, destructiveHint=True),
    tool("shelve", "Puts away.", {"book_id": TEXT}),
]


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def behave(name, given):
    if name == "search_books":
        found = [] if given["query"] == "nothing" else [{"bookId": 7, "title": f"All of {given['query']}"}]
        return text(json.dumps({"query": given["query"], "books": found}))
    if name == "get_book":
        about = {"id": given["book_id"], "pages": 320, "shelf": 12}
        return text(json.dumps(about), structuredContent=about)
    if name == "describe_shelf":
        return text(f"Shelf {given['shelf']} stands in room R-40 and is kept by Ada Moss.")
    if name == "find_keeper":
        return text(f"{given['name']} answers at extension 311.")
    if name == "get_loans":
        return text("Error: HTTP 401 Unauthorized, the api key is missing", isError=given["reader"] != "quiet")
    if name == "get_page":
        return text("x" * given["characters"])
    if name == "get_crash":
        os._exit(3)
    if name == "get_nap":
        time.sleep(30)
        return text("awake")
    if name == "delete_book":
        return text("")
    raise ValueError(f"unknown tool {name}")


def call(request, params):
    name, given = params["name"], params.get("arguments") or {}
    if options.log:
        with lock, Path(options.log).open("a") as file:
            file.write(f"{name} {json.dumps(given, sort_keys=True)}\n")
    time.sleep(options.pause)
    try:
        send({"id": request, "result": behave(name, given)})
    except ValueError as error:
        send({"id": request, "error": {"code": -32602, "message": str(error)}})


for line in sys.stdin:
    message = json.loads(line)
    request, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if request is None or method is None:
        continue
    if method == "initialize":
        about = {"name": "library", "version": "1"}
        send(
            {
                "id": request,
                "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
            }
        )
    elif method == "tools/list":
        send({"id": request, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(request, params), daemon=True).start()
    else:
        send({"id": request, "error": {"code": -32601, "message": "Method not found"}})
