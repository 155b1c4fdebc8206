"""Marketplaces with an API: Smithery (with a key), PulseMCP, DeepNLP."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from toolscout.crawler.agent.configuration import Configured, best, read_configurations, read_entry
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict, package_id, remote_id
from toolscout.crawler.sources.marketplaces_kept import Kept, moment
from toolscout.crawler.sources.marketplaces_pages import QUERIES
from toolscout.errors import BadInput
from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Transport
from toolscout.records import Source as Place

_MOST_PAGES = 10_000
_GONE = frozenset({400, 404, 410, 422})
"""Statuses of an entry that will not come back by asking again."""


class ApiSource(Source):
    """What the sources with an API have in common: pages of rows, each row with a page of its own or without."""

    incremental: ClassVar[bool] = True

    base_url: ClassVar[str]

    def __init__(self, settings: AgentSettings | None = None) -> None:
        self._settings = settings or AgentSettings()
        self.base = self._settings.bases.get(self.name, self.base_url).rstrip("/")

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`. With ``since``, entries that were read before it are left out, and not asked for."""
        kept = Kept(fetcher, self.name, self._settings.refresh_days)
        given: set[str] = set()
        at: str | None = cursor or self.first()
        for _ in range(_MOST_PAGES):
            if at is None:
                return
            rows, following = await self.page(fetcher, at)
            found: list[Found] = []
            problems: list[str] = []
            for row in rows:
                entry = self.entry_id(row) if isinstance(row, dict) else ""
                if not entry:
                    problems.append(f"{self.name} lists an entry without a name.")
                    continue
                if entry in given:
                    continue
                given.add(entry)
                known = kept.get(entry)
                if known is not None and not self.newer(row, known[1]):
                    if isinstance(known[0], str):
                        problems.append(known[0])
                    elif known[1] >= moment(since):
                        found.append(known[0])
                    continue
                result = await self._read(fetcher, entry, row, kept)
                if isinstance(result, str):
                    problems.append(result)
                else:
                    found.append(result)
            yield Batch(found, following, problems)
            at = following

    async def _read(self, fetcher: Fetcher, entry: str, row: JsonObject, kept: Kept) -> Found | str:
        try:
            found = await self.entry(fetcher, entry, row)
        except FetchError as error:
            if error.status not in _GONE:
                raise
            kept.put(entry, problem := f"{self.name} lists {entry}, but {error}")
            return problem
        except ValueError as error:
            kept.put(entry, problem := f"{self.name} lists {entry}, but {error}.")
            return problem
        kept.put(entry, found)
        return found

    def first(self) -> str:
        """The cursor of the first page."""
        return "0"

    def newer(self, row: JsonObject, read: float) -> bool:
        """Whether the row says that its entry changed after it was read (seconds since the epoch)."""
        return False

    @abstractmethod
    async def page(self, fetcher: Fetcher, cursor: str) -> tuple[list[Any], str | None]:
        """One page's rows, and the cursor of the next."""

    @abstractmethod
    def entry_id(self, row: JsonObject) -> str:
        """What the marketplace calls a row's server; '' if it does not."""

    @abstractmethod
    async def entry(self, fetcher: Fetcher, entry: str, row: JsonObject) -> Found:
        """A row's record. Raises ValueError with a half sentence where it is none."""


class Smithery(ApiSource):
    """Smithery's registry API. It wants a key; it states the tools of the servers that it hosts."""

    name: ClassVar[str] = "smithery"
    base_url: ClassVar[str] = "https://api.smithery.ai"

    def __init__(self, settings: AgentSettings | None = None) -> None:
        super().__init__(settings)
        key = self._settings.keys.get(self.name, "")
        if not key:
            raise BadInput(
                "Smithery's API wants a key.",
                'Set TOOLSCOUT_CRAWL_KEYS={"smithery": "..."}, or let the web agent read its pages.',
            )
        self._headers = {"authorization": f"Bearer {key}"}

    def first(self) -> str:
        """See `ApiSource.first`."""
        return "1"

    async def page(self, fetcher: Fetcher, cursor: str) -> tuple[list[Any], str | None]:
        """See `ApiSource.page`."""
        number = _number(cursor)
        value = await _json(
            fetcher, f"{self.base}/servers?page={number}&pageSize=100", headers=self._headers, max_age=0
        )
        pages = _number(_object(value.get("pagination")).get("totalPages"))
        return _list(value.get("servers")), str(number + 1) if number < pages else None

    def entry_id(self, row: JsonObject) -> str:
        """See `ApiSource.entry_id`."""
        return _text(row.get("qualifiedName"))

    def newer(self, row: JsonObject, read: float) -> bool:
        """See `ApiSource.newer`."""
        return moment(_text(row.get("updatedAt") or row.get("createdAt"))) > read

    async def entry(self, fetcher: Fetcher, entry: str, row: JsonObject) -> Found:
        """See `ApiSource.entry`."""
        value = await _json(fetcher, f"{self.base}/servers/{quote(entry, safe='')}", headers=self._headers, max_age=0)
        connections = [c for c in _list(value.get("connections")) if isinstance(c, dict)]
        remote = next((c for c in connections if c.get("type") == "http"), None)
        url = _text((remote or {}).get("deploymentUrl") or (remote or {}).get("url") or value.get("deploymentUrl"))
        schema = _object((remote or (connections[0] if connections else {})).get("configSchema"))
        env = _variables(schema)
        install = Install(registry="url", url=url, env=env) if _is_web(url) else Install(registry="none", env=env)
        tools = tuple(t for t in _list(value.get("tools")) if isinstance(t, dict) and t.get("name"))
        if install.registry == "none" and not tools:
            raise ValueError("it states neither an address nor tools")
        server = Server(
            server_id=remote_id(self.name, entry),
            name=_text(value.get("displayName") or row.get("displayName")) or entry,
            description=_text(value.get("description") or row.get("description")),
            sources=[Place(marketplace=self.name, id=entry, url=f"https://smithery.ai/server/{entry}")],
            transport=Transport.HTTP if install.url else Transport.STDIO,
            install=install,
            homepage=_text(value.get("homepage") or row.get("homepage")) or None,
            popularity=_float(row.get("useCount")),
            state=ServerState.NEEDS_KEY if any(v.required for v in env) else ServerState.NEEDS_INSTALL,
        )
        marker = _text(row.get("updatedAt") or value.get("updatedAt")) or None
        return Found(server, Verdict.SERVER, "hosted there", marker=marker, tools=tools or None)


class PulseMcp(ApiSource):
    """PulseMCP's public API (v0beta): all servers in large pages, with packages where it knows them."""

    name: ClassVar[str] = "pulsemcp"
    base_url: ClassVar[str] = "https://api.pulsemcp.com/v0beta"
    per_page: ClassVar[int] = 500

    async def page(self, fetcher: Fetcher, cursor: str) -> tuple[list[Any], str | None]:
        """See `ApiSource.page`."""
        offset = _number(cursor)
        query = urlencode({"count_per_page": self.per_page, "offset": offset})
        value = await _json(fetcher, f"{self.base}/servers?{query}", max_age=0)
        rows = _list(value.get("servers"))
        # Only the offset is taken from the next page's address: a listing does not follow addresses elsewhere.
        told = parse_qs(urlsplit(_text(value.get("next"))).query).get("offset", [""])[0]
        following = _number(told) or offset + len(rows)
        return rows, str(following) if rows and value.get("next") and following > offset else None

    def entry_id(self, row: JsonObject) -> str:
        """See `ApiSource.entry_id`: the last part of its page's address."""
        return urlsplit(_text(row.get("url"))).path.rstrip("/").rpartition("/")[2]

    async def entry(self, fetcher: Fetcher, entry: str, row: JsonObject) -> Found:
        """See `ApiSource.entry`. The row says it all."""
        registry, package = _text(row.get("package_registry")).lower(), _text(row.get("package_name"))
        registry = {"npm": "npm", "pypi": "pypi", "docker": "oci", "dockerhub": "oci", "oci": "oci"}.get(registry, "")
        remotes = [r for r in _list(row.get("remotes")) if isinstance(r, dict) and _is_web(_text(r.get("url_direct")))]
        transport = Transport.STDIO
        if registry and package:
            install = Install(registry=registry, package=package)
            server_id = package_id(registry, package)
        elif remotes:
            url = _text(remotes[0].get("url_direct"))
            transport = Transport.SSE if "sse" in _text(remotes[0].get("transport")).lower() else Transport.HTTP
            install, server_id = Install(registry="url", url=url), remote_id(self.name, entry)
        else:
            install, server_id = Install(), remote_id(self.name, entry)
        server = Server(
            server_id=server_id,
            name=_text(row.get("name")) or entry,
            description=_text(row.get("short_description") or row.get("EXPERIMENTAL_ai_generated_description")),
            sources=[Place(marketplace=self.name, id=entry, url=_text(row.get("url")) or None)],
            transport=transport,
            install=install,
            homepage=_text(row.get("source_code_url") or row.get("external_url")) or None,
            popularity=_float(row.get("github_stars")),
        )
        if install.registry == "none":
            return Found(server, Verdict.UNKNOWN, "names no package and no address")
        return Found(server, Verdict.SERVER, "names its package" if install.package else "names its address")


class DeepNlp(ApiSource):
    """DeepNLP's API, as the PyPI package ``mcp-marketplace`` calls it: search, then each server's configuration, and
    its tools where nothing can be installed."""

    name: ClassVar[str] = "deepnlp"
    base_url: ClassVar[str] = "http://www.deepnlp.org/api/mcp_marketplace/v1"
    complete = False
    per_page: ClassVar[int] = 100

    async def page(self, fetcher: Fetcher, cursor: str) -> tuple[list[Any], str | None]:
        """See `ApiSource.page`. The cursor is ``WORD.PAGE``, both numbers."""
        word, _, number = cursor.partition(".")
        queries = tuple(self._settings.queries) or QUERIES
        at, page = _number(word), _number(number)
        if at >= len(queries):
            return [], None
        query = urlencode({"mode": "list", "query": queries[at], "page_id": page, "count_per_page": self.per_page})
        value = await _json(fetcher, f"{self.base}?{query}", max_age=0)
        rows = _list(value.get("items"))
        if len(rows) >= self.per_page:
            return rows, f"{at}.{page + 1}"
        return rows, f"{at + 1}.0" if at + 1 < len(queries) else None

    def entry_id(self, row: JsonObject) -> str:
        """See `ApiSource.entry_id`."""
        return _text(row.get("id")).strip("/")

    async def entry(self, fetcher: Fetcher, entry: str, row: JsonObject) -> Found:
        """See `ApiSource.entry`."""
        path = quote(entry, safe="/@")
        items = _list((await _json(fetcher, f"{self.base}/server/{path}")).get("items"))
        item = {**row, **(items[0] if items and isinstance(items[0], dict) else {})}
        configured = _stated(item.get("config"))
        packaged = configured is not None and configured.install.registry in ("npm", "pypi", "oci")
        tools: tuple[JsonObject, ...] | None = None
        if not packaged:
            told = _list((await _json(fetcher, f"{self.base}/tools/{path}")).get("tools"))
            tools = tuple(_wire(t) for t in told if isinstance(t, dict) and t.get("name")) or None
        if configured is None and tools is None:
            raise ValueError("it states neither a configuration nor tools")
        install = configured.install if configured is not None else Install()
        server = Server(
            server_id=package_id(install.registry, str(install.package)) if packaged else remote_id(self.name, entry),
            name=_text(item.get("content_name")) or entry,
            description=_text(item.get("description"))[:2000],
            sources=[Place(marketplace=self.name, id=entry)],
            transport=configured.transport if configured is not None else Transport.STDIO,
            install=install,
            version=configured.version if configured is not None else None,
            homepage=_text(item.get("website")) or None,
            state=ServerState.NEEDS_KEY if configured and configured.needs_key else ServerState.NEEDS_INSTALL,
        )
        verdict = Verdict.SERVER if install.registry != "none" or tools else Verdict.UNKNOWN
        reason = "states its configuration" if configured is not None else "states its tools"
        args = configured.args if configured is not None else ()
        return Found(server, verdict, reason, marker=server.version, tools=tools, args=args)


def _stated(config: Any) -> Configured | None:
    """The configuration of an API's field: objects, or text that holds one."""
    found: list[Configured] = []
    for part in config if isinstance(config, list) else [config]:
        if isinstance(part, dict):
            for name, entry in _object(part.get("mcpServers") or part).items():
                configured = read_entry(str(name), entry) if isinstance(entry, dict) else None
                if configured is not None:
                    found.append(configured)
        elif isinstance(part, str):
            found += read_configurations(part).found
    return best(found)


def _wire(tool: JsonObject) -> JsonObject:
    """A tool in the protocol's own form; this API writes ``input_schema``."""
    wire = {k: v for k, v in tool.items() if k != "input_schema"}
    if "inputSchema" not in wire and isinstance(tool.get("input_schema"), dict):
        wire["inputSchema"] = tool["input_schema"]
    return wire


def _variables(schema: JsonObject) -> list[EnvVar]:
    """What a configuration schema asks for; it holds no values."""
    required = {str(n) for n in _list(schema.get("required"))}
    secret = ("key", "token", "secret", "password", "auth")
    return [
        EnvVar(
            name=str(name),
            required=name in required,
            secret=any(word in str(name).lower() for word in secret),
            description=_text(_object(told).get("description")) or None,
        )
        for name, told in _object(schema.get("properties")).items()
    ]


async def _json(fetcher: Fetcher, url: str, **options: Any) -> JsonObject:
    value = await fetcher.json(url, **options)
    if not isinstance(value, dict):
        raise FetchError(f"{urlsplit(url).netloc} does not answer with a JSON object.", status=422)
    return value


def _number(value: Any) -> int:
    try:
        return max(int(value), 0)
    except (ValueError, TypeError):
        return 0


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, TypeError):
        return None


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _is_web(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
