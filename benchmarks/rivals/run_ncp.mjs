// NCP (portel-dev/ncp, @portel/ncp): its discovery engine and tool discovery service, as its `find` calls them.
//
//   node run_ncp.mjs NCP/dist/ncp.mjs [CACHE_FOLDER]
//
// The bundle is made from its sources, README.md says how; it exports DiscoveryEngine, ToolDiscoveryService and
// MCPHealthMonitor, and its package.json lies one folder up. Its model, all-MiniLM-L6-v2 in transformers.js, must lie in that library's own file cache. As it
// indexes it writes all embeddings to a file again after every server, which at a thousand servers takes hours: that
// writing is left out. `find` fetches 55 results for five and so reorders 110 candidates; the same is asked here.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const FETCHED = 55;
const [bundle, cacheFolder] = process.argv.slice(2);
process.argv[1] = path.resolve(bundle); // it looks for its package.json from there
const { version } = JSON.parse(readFileSync(path.join(path.dirname(process.argv[1]), "..", "package.json"), "utf8"));
const answer = (value) => process.stdout.write(JSON.stringify(value) + "\n");
console.log = console.info = console.warn = console.error;

async function build(tools) {
  const { DiscoveryEngine, ToolDiscoveryService, MCPHealthMonitor } = await import(pathToFileURL(process.argv[1]));
  const engine = new DiscoveryEngine();
  await engine.initialize();
  const rag = engine.ragEngine;
  if (!rag.getModel()) throw new Error("its model could not be loaded: see benchmarks/rivals/README.md");
  rag.persistEmbeddings = rag.updateCacheMetadata = async () => {};
  const model = rag.model;
  if (cacheFolder) rag.model = remembering(model, cacheFolder);

  const ids = new Map();
  const servers = new Map();
  for (const tool of tools) {
    // "mcp:tool" is its name of a tool and is split at the colon
    const server = tool.server.server_id.replaceAll(":", "_");
    const name = tool.name.replaceAll(":", "_");
    const id = `${server}:${name}`;
    if (ids.has(id)) continue;
    ids.set(id, tool.tool_id);
    if (!servers.has(server)) servers.set(server, []);
    servers.get(server).push({ name, description: tool.description, inputSchema: tool.input_schema });
  }
  const state = { allTools: [], definitions: new Map(), toolToMCP: new Map(), connections: new Map() };
  for (const [server, own] of servers) {
    await engine.indexMCPTools(server, own);
    state.definitions.set(server, { name: server, tools: own });
    for (const tool of own) {
      state.allTools.push({ name: `${server}:${tool.name}`, description: tool.description, mcpName: server });
      state.toolToMCP.set(`${server}:${tool.name}`, server);
    }
  }
  rag.model = model;
  const service = new ToolDiscoveryService({ state }, engine, new MCPHealthMonitor());
  return async (query) => {
    const found = await service.find(query, { limit: FETCHED, detailed: true });
    return found.map((one) => ids.get(one.toolName)).filter(Boolean);
  };
}

// Vectors of documents, kept in one JSON file for later runs.
function remembering(model, folder) {
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, "ncp.json");
  const known = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  let fresh = 0;
  const save = () => writeFileSync(file, JSON.stringify(known));
  process.on("exit", () => fresh && save());
  return async (text, options) => {
    const key = createHash("sha256").update(text).digest("hex");
    if (!known[key]) {
      const { data } = await model(text, options);
      known[key] = Buffer.from(Float32Array.from(data).buffer).toString("base64");
      if (++fresh % 1000 === 0) save();
    }
    const bytes = Buffer.from(known[key], "base64");
    return { data: new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4).slice() };
  };
}

const tools = [];
let search = null;
for await (const line of readline.createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  if (question.op === "tool") {
    tools.push(question.tool);
    continue;
  }
  const start = performance.now();
  try {
    if (question.op === "index") {
      search = await build(tools);
      answer({ about: `NCP ${version}, ToolDiscoveryService, all-MiniLM-L6-v2`, seconds: (performance.now() - start) / 1000 });
    } else {
      const ranked = await search(question.query);
      const seconds = (performance.now() - start) / 1000;
      answer({ ranked: ranked.slice(0, question.limit), seconds, answer: null });
    }
  } catch (error) {
    answer({ error: `${error.name}: ${error.message}` });
  }
}
process.exit(0);
