"""Compiled bytecode for common dependencies, made once and linked into every environment.

A fresh environment compiles all that it imports at each start: a second and more for a server built on the MCP SDK,
and it cannot keep the result where its installation is read-only. A distribution of one name and version has the same
modules in every environment, so their bytecode can be shared. It is made from a copy that the index itself served,
installed alone (another package's wheel may hold a changed copy), by the compiler: nothing of it is run. No server can
write to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from toolscout.crawler.failures import DeployError
from toolscout.crawler.install.base import Shop, own_folder

FROM = 2
"""Uses from which on a distribution's bytecode is kept: what only one package depends on is not worth it."""

_MOST_FILES = 1500
"""Distributions with more modules are left out: few of them are imported."""

_KEY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*)-([A-Za-z0-9][A-Za-z0-9.!+_]*)")

_COMPILE = (
    "import compileall,py_compile,sys;"
    "compileall.compile_dir(sys.argv[1],quiet=2,force=True,"
    "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
)

Fetch = Callable[[Path, Path, str], Awaitable[bool]]
"""``await fetch(python, folder, "name==version")``: install one distribution alone into ``folder/alone``."""


class Bytecode:
    """A store of bytecode, by interpreter, distribution and version."""

    def __init__(self, shop: Shop, fetch: Fetch) -> None:
        self._shop = shop
        self._fetch = fetch
        self._folder = shop.cache.parent / "bytecode"
        self._folder.mkdir(exist_ok=True)
        self._counts = self._folder / "uses.json"
        self._uses: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError):
            self._uses = json.loads(self._counts.read_text())

    async def provide(self, site: Path, python: Path) -> None:
        """Link what is kept into an environment's packages; make it for what is used for the second time."""
        for name in _distributions(site):
            if _KEY.fullmatch(name) is None:
                continue
            key = f"{site.parent.name}/{name}"
            kept = self._folder / key
            self._uses[key] = self._uses.get(key, 0) + 1
            if self._uses[key] == FROM and not kept.is_dir():
                await self._make(name, kept, python)
            if kept.is_dir():
                await asyncio.to_thread(_link, kept, site)
        with contextlib.suppress(OSError):
            self._counts.write_text(json.dumps(self._uses))

    async def _make(self, name: str, kept: Path, python: Path) -> None:
        match = _KEY.fullmatch(name)
        assert match is not None
        work = own_folder(self._folder / f"{kept.parent.name}-{name}.alone")
        try:
            if not await self._fetch(python, work, f"{match[1]}=={match[2]}"):
                return
            alone = work / "alone"
            if sum(1 for _ in alone.rglob("*.py")) > _MOST_FILES:
                return
            line: Sequence[str] = [str(python), "-I", "-c", _COMPILE, str(alone)]
            await self._shop.run(line, work, {})
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f"{kept.name}.part")
            for made in list(alone.rglob("*.pyc")):
                target = part / made.relative_to(alone)
                target.parent.mkdir(parents=True, exist_ok=True)
                made.rename(target)
            if part.is_dir():
                part.rename(kept)
        except (DeployError, OSError):
            return  # slower, not wrong
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _distributions(site: Path) -> list[str]:
    """``name-version`` of all that is installed."""
    return sorted(path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info"))


def _link(kept: Path, site: Path) -> None:
    for root, _, names in os.walk(kept):
        folder = site / Path(root).relative_to(kept)
        if not names or not folder.parent.is_dir():
            continue
        folder.mkdir(exist_ok=True)
        for name in names:
            with contextlib.suppress(OSError):
                os.link(Path(root, name), folder / name)
