"""Servers that speak HTTP alone are listed inside the sandbox, over its own loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from crawl_work import LIMITS, SANDBOXES, deployer, needs_node, needs_sandbox, work_folder

from toolscout.crawler import deploy
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.records import server_record
from toolscout.crawler.sources.names import found
from toolscout.errors import NotAllowed
from toolscout.records import Server, Transport
from toolscout.server.launch import catalogue_launch

pytestmark = [needs_sandbox, needs_node]

_ANSWER = """
const http = require('node:http')
const tools = [{ name: 'tide', description: 'At ' + process.argv.join(' '), inputSchema: { type: 'object' } }]
const answer = ({ id, method, params }) => JSON.stringify({ jsonrpc: '2.0', id, result: method === 'initialize' ?
  { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'tides' } } : { tools } })
const body = (request, then) => {
  let text = ''
  request.on('data', (data) => { text += data }).on('end', () => then(JSON.parse(text)))
}
"""
_STREAMABLE = """
http.createServer((request, response) => {
  if (request.method !== 'POST' || request.url !== '/mcp') return response.writeHead(404).end('Not here')
  body(request, (message) => {
    if (message.method !== 'initialize' && request.headers['mcp-session-id'] !== 's1')
      return response.writeHead(400).end('No session')
    if (message.id === undefined) return response.writeHead(202).end()
    response.writeHead(200, { 'content-type': 'text/event-stream', 'mcp-session-id': 's1' })
    response.end(`event: message\\ndata: ${answer(message)}\\n\\n`)
  })
}).listen(3123, '127.0.0.1')
"""
_EVENT_STREAM = """
let stream
http.createServer((request, response) => {
  if (request.url === '/sse' && request.method === 'GET') {
    stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
    return stream.write('event: endpoint\\ndata: /messages?session=1\\n\\n')
  }
  if (request.url !== '/messages?session=1') return response.writeHead(404).end()
  body(request, (message) => {
    response.writeHead(202).end()
    if (message.id !== undefined) stream.write(`event: message\\ndata: ${answer(message)}\\n\\n`)
  })
}).listen(3124, () => console.log('SSE server listening on port 3124'))
"""
_GUARDED = _STREAMABLE.replace(
    "body(request, (message) => {",
    "if (!request.headers.authorization) return response.writeHead(401).end()\n  body(request, (message) => {",
)


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    yield from served()


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    yield from work_folder()


async def _deployed(packages: PackageServer, work: Path, name: str, code: str) -> tuple[Outcome, Server]:
    packages.publish_npm(PACKAGES / "npm" / "http-only-mcp", name=name, files={"index.js": _ANSWER + code})
    made = deployer(work, SANDBOXES[0](), LIMITS)
    outcome = await made.deploy("npm", name)
    await made.tidy()
    assert outcome.verdict is None, outcome.verdict
    return outcome, server_record(found("npm", name).server, outcome, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("code", "transport", "url", "key"),
    [
        (_STREAMABLE, Transport.HTTP, "http://localhost:3123/mcp", False),
        (_EVENT_STREAM, Transport.SSE, "http://localhost:3124/sse", False),
        (_GUARDED, Transport.HTTP, "http://localhost:3123/mcp", True),
    ],
)
async def test_a_server_that_speaks_http_alone(
    packages: PackageServer, work: Path, monkeypatch: pytest.MonkeyPatch, code: str, transport: str, url: str, key: bool
) -> None:
    monkeypatch.setattr(deploy, "_AGAIN", 0.2)
    monkeypatch.setattr(deploy, "_HTTP_GRACE", 1.0)
    outcome, server = await _deployed(packages, work, f"http-{transport}-{key}-mcp".lower(), code)
    assert outcome.listing is not None and [t["name"] for t in outcome.listing.tools] == ["tide"]
    assert (server.transport, server.install.url, server.install.args) == (transport, url, [])
    assert outcome.needs_key == key
    assert server.install.command == "http-only-mcp", "it has to be started before it is asked"
    assert str(work) not in json.dumps(outcome.listing.tools)
    with pytest.raises(NotAllowed, match="speaks HTTP alone"):
        catalogue_launch(server)
