// A server of the 2025 era on the TypeScript SDK 1.x, streamable HTTP with sessions: what most remote servers are.
//
//     node typescript.mjs NODE_MODULES PORT
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [folder, port] = process.argv.slice(2);
const sdk = (path) => import(pathToFileURL(`${folder}/@modelcontextprotocol/sdk/dist/esm/${path}`));
const { Server } = await sdk("server/index.js");
const { StreamableHTTPServerTransport } = await sdk("server/streamableHttp.js");
const { CallToolRequestSchema, ListToolsRequestSchema } = await sdk("types.js");

const sessions = new Map();

function open() {
  const server = new Server({ name: "typescript", version: "1" }, { capabilities: { tools: {} } });
  const inputSchema = { type: "object", properties: { text: { type: "string" } } };
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: "echo", inputSchema }] }));
  server.setRequestHandler(CallToolRequestSchema, (request) => ({
    content: [{ type: "text", text: request.params.arguments.text }],
  }));
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  return server.connect(transport).then(() => transport);
}

createServer(async (request, response) => {
  const transport = sessions.get(request.headers["mcp-session-id"]) ?? (await open());
  await transport.handleRequest(request, response);
}).listen(Number(port), "127.0.0.1");
