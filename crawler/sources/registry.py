"""The official MCP registry's API, version 0.1, as a source; any registry that follows it (a company's own) serves too.

It lists servers with their packages and remotes. A ``server.json`` has no tools: packages are deployed for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit, urlunsplit

from toolscout.crawler.dummies import is_secret
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict, package_id, remote_id
from toolscout.errors import BadInput
from toolscout.records import EnvVar, Install, Server, Transport
from toolscout.records import Source as Place

_META = "io.modelcontextprotocol.registry/official"
_PAGE = 100
_DEPLOYED = ("npm", "pypi")


class RegistrySource(Source):
    """Servers of an MCP registry, their newest versions.

    Args:
        url: the registry's address, without ``/v0.1``.
    """

    name: ClassVar[str] = "registry"
    incremental: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(
                "The MCP registry's address is not set." if not url else f"{url} is no address of a registry.",
                "Give it with --registry-url or TOOLSCOUT_REGISTRY_URL.",
            )
        self._url = url.rstrip("/").removesuffix("/v0.1")
        self.narrowed = self._url

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`."""
        seen: set[str] = set()
        while True:
            query = {"limit": str(_PAGE), "version": "latest"}
            if cursor:
                query["cursor"] = cursor
            if since:
                query["updated_since"] = since
                query["include_deleted"] = "true"
            # A cursor's page changes while servers are added: never from the cache.
            document = await fetcher.json(f"{self._url}/v0.1/servers?{urlencode(query)}", max_age=0)
            servers = document.get("servers") if isinstance(document, dict) else None
            if not isinstance(servers, list):
                raise FetchError("The MCP registry answered without a list of servers.", "Is the address right?")
            following = _object(document.get("metadata")).get("nextCursor")
            following = following if isinstance(following, str) and following and following not in seen else None
            entries: list[Found] = []
            vanished: list[Found] = []
            problems: list[str] = []
            for item in servers:
                try:
                    found = self._found(item)
                    (vanished if _withdrawn(item) else entries).extend(found)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    problems.append(f"an entry of the registry cannot be read: {error}")
            yield Batch(entries, following, problems, [found.server.server_id for found in vanished])
            if following is None:
                return
            seen.add(following)
            cursor = following

    def _found(self, item: Mapping[str, Any]) -> list[Found]:
        document = _object(item["server"])
        name = document["name"]
        if not isinstance(name, str) or not name.strip():
            raise ValueError("it has no name")
        official = _object(_object(item.get("_meta")).get(_META))
        if official.get("isLatest") is False:
            return []
        version = _text(document.get("version"))
        common: dict[str, Any] = {
            "name": name,
            "title": _text(document.get("title")) or None,
            "description": _text(document.get("description")),
            "homepage": _text(document.get("websiteUrl"))
            or _text(_object(document.get("repository")).get("url"))
            or None,
            "sources": [Place(marketplace=self.name, id=name, url=f"{_public(self._url)}/v0.1/servers")],
        }
        published = _text(official.get("updatedAt")) or _text(official.get("publishedAt")) or None
        packages = [p for p in document.get("packages") or [] if isinstance(p, dict) and p.get("identifier")]
        # One way to deploy it is enough; the others are the same server.
        packages.sort(key=lambda p: (_registry(p) not in _DEPLOYED, _registry(p) == "none", not _speaks_stdio(p)))
        remotes = [r for r in document.get("remotes") or [] if isinstance(r, dict) and r.get("url")]
        if packages and (_registry(packages[0]) != "none" or not remotes):
            return [self._package(packages[0], common, version, published)]
        # A remote server can be used as it is; a package of a kind that nothing here installs cannot.
        return [self._remote(remotes[0], name, common, version, published)] if remotes else []

    def _package(
        self, package: Mapping[str, Any], common: Mapping[str, Any], version: str, published: str | None
    ) -> Found:
        registry, identifier = _registry(package), _text(package["identifier"])
        arguments, placeholders = _arguments(package.get("packageArguments"))
        server = Server(
            server_id=package_id(registry, identifier),
            version=_text(package.get("version")) or version or None,
            install=Install(
                registry=registry,
                package=identifier,
                version=_text(package.get("version")) or None,
                args=placeholders,
                env=_variables(package.get("environmentVariables")),
            ),
            transport=_transport(package.get("transport"), Transport.STDIO),
            **common,
        )
        return Found(
            server, Verdict.SERVER, "listed as one", marker=version or None, published=published, args=tuple(arguments)
        )

    def _remote(
        self, remote: Mapping[str, Any], name: str, common: Mapping[str, Any], version: str, published: str | None
    ) -> Found:
        server = Server(
            server_id=remote_id(self.name, name),
            version=version or None,
            transport=_transport(remote, Transport.HTTP),
            install=Install(registry="url", url=_text(remote["url"]), env=_variables(remote.get("headers"))),
            **common,
        )
        return Found(server, Verdict.SERVER, "listed as one", marker=version or None, published=published)


def _public(url: str) -> str:
    """An address as it may go out with a record: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _withdrawn(item: Mapping[str, Any]) -> bool:
    return bool(_object(_object(item.get("_meta")).get(_META)).get("status") == "deleted")


def _registry(package: Mapping[str, Any]) -> str:
    kind = _text(package.get("registryType")) or _text(package.get("registry_type"))
    return kind.lower() if kind.lower() in ("npm", "pypi", "oci") else "none"


def _speaks_stdio(package: Mapping[str, Any]) -> bool:
    return bool(_object(package.get("transport")).get("type", "stdio") == "stdio")


def _transport(given: Any, usual: Transport) -> Transport:
    """How it is spoken to, where it says so."""
    kinds = {"stdio": Transport.STDIO, "sse": Transport.SSE, "streamable-http": Transport.HTTP}
    return kinds.get(_text(_object(given).get("type")), usual)


def _arguments(given: Any) -> tuple[list[str], list[str]]:
    """Arguments to deploy with (fixed values and defaults), and those to record, with placeholders."""
    tried: list[str] = []
    shown: list[str] = []
    for argument in given if isinstance(given, list) else ():
        if not isinstance(argument, dict):
            continue
        name, value = _text(argument.get("name")), _text(argument.get("value")) or _text(argument.get("default"))
        if "{" in value:
            value = ""  # a template for values that only a user has
        if not value and not argument.get("isRequired"):
            continue
        placeholder = value or f"<{_text(argument.get('valueHint')) or name.lstrip('-') or 'value'}>"
        flag = [name] if argument.get("type") == "named" and name else []
        shown += [*flag, placeholder]
        if value:
            tried += [*flag, value]
    return tried, shown


def _variables(given: Any) -> list[EnvVar]:
    found = []
    for variable in given if isinstance(given, list) else ():
        name = _text(variable.get("name")) if isinstance(variable, dict) else ""
        if name:
            found.append(
                EnvVar(
                    name=name,
                    required=bool(variable.get("isRequired")),
                    secret=bool(variable.get("isSecret")) or is_secret(name),
                    description=_text(variable.get("description")) or None,
                )
            )
    return found


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
