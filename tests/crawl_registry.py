"""A local npm registry and a local simple index over `crawl_packages`, and an MCP registry: all that a crawl asks."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

PACKAGES = Path(__file__).parent / "crawl_packages"
Answer = tuple[int, str, bytes]


class LocalServer:
    """An HTTP server on the loopback; ``answer(path, query)`` gives status, content type and body."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Answer]) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._reply(with_body=False)

            def do_GET(self) -> None:
                self._reply(with_body=True)

            def _reply(self, *, with_body: bool) -> None:
                outer.asked.append(self.path)
                parts = urlsplit(self.path)
                query = {k: v[0] for k, v in parse_qs(parts.query).items()}
                outer.agents.add(self.headers.get("user-agent", ""))
                status, kind, body = answer(unquote(parts.path), query)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.agents: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class PackageServer:
    """``npm`` and ``simple`` on one address. Packages can be added, changed and withdrawn while it runs."""

    def __init__(self) -> None:
        self.npm: dict[str, dict[str, bytes]] = {}
        """Tarballs by package and version."""
        self.wheels: dict[str, dict[str, tuple[bytes, dict[str, Any]]]] = {}
        """Files by project and file name, with their metadata."""
        self.serials: dict[str, int] = {}
        self.elsewhere: dict[str, str] = {}
        """npm packages whose tarball is on another host: its address."""
        self._server = LocalServer(self._answer)
        self.url = self._server.url
        for manifest in sorted((PACKAGES / "npm").rglob("package.json")):
            self.publish_npm(manifest.parent)
        for wheel in sorted((PACKAGES / "pypi").glob("*/wheel.json")):
            self.publish_wheel(wheel.parent)

    @property
    def asked(self) -> list[str]:
        return self._server.asked

    def close(self) -> None:
        self._server.close()

    def environment(self) -> dict[str, str]:
        """What makes npm, bun, uv and pip ask here and nowhere else."""
        simple = f"{self.url}/simple"
        return {
            "npm_config_registry": f"{self.url}/npm/",
            "BUN_CONFIG_REGISTRY": f"{self.url}/npm/",
            "UV_DEFAULT_INDEX": simple,
            "PIP_INDEX_URL": simple,
        }

    def publish_npm(self, folder: Path, **changes: Any) -> None:
        """Pack a folder; ``changes`` replace fields of its manifest, or add files (``files={path: text}``)."""
        files = dict(changes.pop("files", {}))
        manifest = {**json.loads((folder / "package.json").read_text()), **changes}
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                files.setdefault(str(path.relative_to(folder)), path.read_bytes())
            files["package.json"] = json.dumps(manifest)
            for name, content in files.items():
                data = content.encode() if isinstance(content, str) else content
                info = tarfile.TarInfo(f"package/{name}")
                info.size, info.mode, info.mtime = len(data), 0o755, 1_700_000_000
                tar.addfile(info, io.BytesIO(data))
        self.npm.setdefault(manifest["name"], {})[manifest["version"]] = packed.getvalue()

    def publish_wheel(self, folder: Path, **changes: Any) -> None:
        about = {**json.loads((folder / "wheel.json").read_text()), **changes}
        name, version = about["name"].replace("-", "_"), about["version"]
        if about["only_source"]:
            file, data = f"{name}-{version}.tar.gz", gzip.compress(b"", mtime=0)
        else:
            file, data = f"{name}-{version}-py3-none-any.whl", _wheel(folder, name, about)
        self.wheels.setdefault(about["name"], {})[file] = (data, about)
        self.serials[about["name"]] = self.serials.get(about["name"], 0) + 1

    def _answer(self, path: str, query: dict[str, str]) -> Answer:
        kind, _, rest = path.strip("/").partition("/")
        try:
            if kind == "npm":
                return self._npm(rest)
            if kind == "tarball":
                package, _, version = rest.removesuffix(".tgz").rpartition("/")
                return 200, "application/octet-stream", self.npm[package][version]
            if kind == "simple":
                return self._simple(rest.strip("/"))
            if kind == "file":
                project, _, file = rest.partition("/")
                return 200, "application/octet-stream", self.wheels[project][file][0]
        except KeyError:
            pass
        return 404, "application/json", b'{"error": "Not found"}'

    def _npm(self, rest: str) -> Answer:
        latest = rest.endswith("/latest")
        package = rest.removesuffix("/latest")
        versions = {v: self._manifest(package, v) for v in self.npm[package]}
        newest = list(versions)[-1]
        document = {
            "name": package,
            "dist-tags": {"latest": newest},
            "versions": versions,
            "time": dict.fromkeys(versions, "2026-01-01T00:00:00.000Z"),
        }
        return 200, "application/json", json.dumps(versions[newest] if latest else document).encode()

    def _manifest(self, package: str, version: str) -> dict[str, Any]:
        data = self.npm[package][version]
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            manifest: dict[str, Any] = json.loads(tar.extractfile("package/package.json").read())  # type: ignore[union-attr]
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        tarball = self.elsewhere.get(package) or f"{self.url}/tarball/{package}/{version}.tgz"
        if "install" in manifest.get("scripts", {}):
            manifest["hasInstallScript"] = True
        return {**manifest, "dist": {"tarball": tarball, "integrity": f"sha512-{digest}"}}

    def _simple(self, project: str) -> Answer:
        kind = "application/vnd.pypi.simple.v1+json"
        meta = {"api-version": "1.1"}
        if not project:
            projects = [{"name": name, "_last-serial": n} for name, n in self.serials.items()]
            return 200, kind, json.dumps({"meta": meta, "projects": projects}).encode()
        files = [
            {
                "filename": file,
                "url": f"{self.url}/file/{project}/{file}",
                "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
                "requires-python": about["python"],
                "upload-time": about["uploaded"],
                "size": len(data),
            }
            for file, (data, about) in self.wheels[project].items()
        ]
        versions = [about["version"] for _, about in self.wheels[project].values()]
        return 200, kind, json.dumps({"meta": meta, "name": project, "files": files, "versions": versions}).encode()


def _wheel(folder: Path, name: str, about: dict[str, Any]) -> bytes:
    info = f"{name}-{about['version']}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}"]
    lines += [f"Summary: {about['name']}, an MCP server for tests", f"Requires-Python: {about['python']}"]
    lines += [f"Requires-Dist: {r}" for r in about["requires"]]
    files = {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*.py"))} | about.get("files", {})
    files[f"{info}/METADATA"] = "\n".join(lines) + "\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    scripts = "".join(f"{k} = {v}\n" for k, v in about["scripts"].items())
    if scripts:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}"
    files[f"{info}/RECORD"] = "".join(f"{n},,\n" for n in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return packed.getvalue()


_USERS_OWN = ("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_FIND_LINKS")


def served(**variables: str) -> Iterator[PackageServer]:
    """A package server that this process's package clients ask, and no other; with further variables set."""
    server = PackageServer()
    with pytest.MonkeyPatch.context() as patch:
        for name in _USERS_OWN:
            patch.delenv(name, raising=False)
        for name, value in {**server.environment(), **variables}.items():
            patch.setenv(name, value)
        yield server
    server.close()
