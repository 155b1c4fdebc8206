"""Configuration files of clients, each in its own form. Every key in them is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from toolscout.server.clients.known import Machine, get_client

KEY = "Zq84hs9dkQ0Lpw72bX1mRt5w"
PASSWORD = "Passw0rd!47"
SECRETS = (KEY, PASSWORD)

FILES = {
    "gemini": json.dumps(
        {
            "theme": "Dark",
            "mcp": {"excluded": ["x"]},
            "mcpServers": {
                "notes": {"command": "npx", "args": ["-y", "notes"], "env": {"NOTES_KEY": "$NOTES_KEY", "DIR": "/n"}},
                "docs": {"httpUrl": "https://docs.example.com/mcp", "headers": {"Authorization": f"Bearer {KEY}"}},
            },
        },
        indent=2,
    ),
    "opencode": """{
  "$schema": "https://opencode.ai/config.json",
  // mine
  "mcp": {
    "notes": {
      "type": "local", "command": ["npx", "-y", "notes"], "enabled": true,
      "environment": { "NOTES_KEY": "{env:NOTES_KEY}", "API_TOKEN": "KEY_HERE" },
    },
    "docs": { "type": "remote", "url": "https://docs.example.com/mcp", "enabled": false },
  },
}
""".replace("KEY_HERE", KEY),
    "zed": """// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "notes": { "command": "npx", "args": ["-y", "notes"], "env": { "API_TOKEN": "KEY_HERE" } },
    "older": { "command": { "path": "uvx", "args": ["older"], "env": { "A": "1" } }, "settings": {} },
    "markdown-pdf": { "enabled": true, "settings": { "page": "Letter" } },
  },
}
""".replace("KEY_HERE", KEY),
    "cline": json.dumps(
        {
            "mcpServers": {
                "notes": {"command": "npx", "args": ["-y", "notes"], "env": {"API_TOKEN": KEY}, "alwaysAllow": []},
                "events": {"url": "http://127.0.0.1:9/events"},
                "docs": {"type": "streamableHttp", "url": "https://docs.example.com/mcp", "timeout": 60},
            }
        }
    ),
    "roo": json.dumps(
        {
            "mcpServers": {
                "notes": {"command": "cmd", "args": ["/c", "npx", "-y", "notes"], "alwaysAllow": ["x"]},
                "docs": {"type": "streamable-http", "url": "https://docs.example.com/mcp", "headers": {"X-Key": KEY}},
            }
        },
        indent="\t",
    ),
    "goose": f"""# my goose
GOOSE_PROVIDER: "anthropic"
extensions:
    developer:   # built in
        bundled: true
        enabled: true
        name: developer
        timeout: 300
        type: builtin
    notes:
        args:
        - -y
        - notes
        cmd: npx
        description: ''
        enabled: true
        env_keys: [NOTES_KEY]
        envs:
            API_TOKEN: {KEY}
        name: notes
        timeout: 300
        type: stdio
    docs:
        enabled: true
        name: docs
        type: streamable_http
        uri: https://docs.example.com/mcp
        headers: {{}}
# the end
GOOSE_MODE: auto
""",
    "lmstudio": json.dumps(
        {"mcpServers": {"docs": {"url": "https://docs.example.com/mcp", "headers": {"X-Key": KEY}}}}
    ),
    "junie": json.dumps({"mcpServers": {"notes": {"command": "npx", "args": ["-y", "notes", f"--api-key={KEY}"]}}}),
    "kiro": json.dumps(
        {
            "mcpServers": {
                "db": {
                    "command": "uvx",
                    "args": ["db-mcp", "--dsn", f"Server=db;User Id=sa;Password={PASSWORD}"],
                    "disabled": False,
                    "autoApprove": ["query"],
                }
            }
        }
    ),
    "amazonq": json.dumps(
        {"mcpServers": {"docs": {"type": "http", "url": "https://docs.example.com/mcp", "headers": {"X-Key": KEY}}}}
    ),
}


def path_of(client: str, where: Machine) -> Path:
    """Where the client's own file is, by its first place."""
    return next(iter(get_client(client).places(where))).path


def write_files(where: Machine) -> Iterator[Path]:
    """Write every file to its place."""
    for client, text in FILES.items():
        path = path_of(client, where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        yield path
