"""From an upstream's entry to its sandbox, ready to be started."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from toolscout.bubblewrap import PATH, WORKDIR, tool
from toolscout.errors import NotAllowed
from toolscout.server.config import UpstreamConfig
from toolscout.server.sandbox import bridge
from toolscout.server.sandbox.box import BRIDGE, SOCKET, Box, require
from toolscout.server.sandbox.environment import base_environment, certificates
from toolscout.server.sandbox.package import Installed, Package, provide, read_package
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.proxy import proxy
from toolscout.server.sandbox.view import own_code, python_runtime, runtime, wants_npm_install
from toolscout.server.upstreams.environment import safe_environment
from toolscout.server.upstreams.process import CommandNotFound, find_program

_PORT = 3128
_NODE = "/run/toolscout"
"""Where stand-ins for Node that do nothing but fail are seen inside, before all else on the PATH."""


@asynccontextmanager
async def sandboxed(config: UpstreamConfig, policy: Policy, *, home: Path, marker: str) -> AsyncIterator[Box]:
    """The sandbox of an upstream whose references are resolved; what serves it from outside ends with the context.

    Installs the package of an npx or uvx line first, if that was not done yet. ``home`` is Toolscout's.

    Raises NotAllowed where the sandbox cannot be made as it was asked for, UpstreamError when a package cannot be
    installed, CommandNotFound for a program that is not here. Nothing is ever started without the sandbox.
    """
    await asyncio.to_thread(require)
    policy.check(config.name, home)
    package = read_package(config.command, config.args)
    installed = await provide(package, home, marker=f"{marker}/install") if package is not None else None
    box = _box(config, policy, home, package, installed)
    if not isinstance(policy.network, tuple):
        yield box
        return
    async with proxy(policy.network, box.user()[0]) as socket:
        yield _behind_proxy(box, socket)


def _box(
    config: UpstreamConfig, policy: Policy, home: Path, package: Package | None, installed: Installed | None
) -> Box:
    env = base_environment(policy.network)
    cwd = str(Path(config.cwd).expanduser()) if config.cwd else None
    path = config.env.get("PATH", safe_environment().get("PATH"))
    if package is not None and installed is not None:
        program, args = installed.program, package.args
        # Not what its own files name as an interpreter: they are a stranger's.
        readable = [installed.folder, *(python_runtime() if package.runner == "uvx" else [])]
        node = package.runner == "npx"
    else:
        found = find_program(config.command, cwd, path)
        if found is None:
            raise CommandNotFound(config.command)
        program, args = Path(os.path.abspath(found)), config.args  # noqa: PTH100  (resolve would follow the links)
        code = own_code(config.command, args, cwd)
        readable = [*runtime(program), *([code] if code is not None else [])]
        node = True
    if node and (found := find_program("node", None, path)) is not None:
        readable += runtime(Path(found))  # for what begins with #!/usr/bin/env node
    if cwd is not None and not any(Path(cwd).is_relative_to(p) for p in (*policy.read, *policy.write)):
        Policy(read=(Path(cwd),)).check(config.name, home)
        if Path.home().is_relative_to(Path(cwd).resolve()):
            raise NotAllowed(f"'{config.name}' is run in {cwd}, which holds a home folder.", 'Correct its "cwd".')
        readable.append(Path(cwd))
    python = not node or re.fullmatch(r"python[\d.]*", Path(config.command).name) is not None
    # It would run "npm install" at its first call, in its own code, which it cannot write, and fail with that.
    without_node = python and wants_npm_install(readable)
    bindings = [(Path(tool("false")), f"{_NODE}/{name}") for name in ("node", "npm", "npx")] if without_node else []
    folders = [*([_NODE] if without_node else []), *_programs(readable, program), *PATH.split(":")]
    env["PATH"] = ":".join(dict.fromkeys(folders))
    readable += certificates(env)
    seen = tuple(dict.fromkeys(readable))
    own, kept = home.resolve(), home.resolve() / "sandbox"
    for real in (path.resolve() for path in seen):
        if own.is_relative_to(real) or (real.is_relative_to(own) and not real.is_relative_to(kept)):
            raise NotAllowed(f"'{config.name}' lies in {real}, which holds Toolscout's own files ({home}).")
        if any(real.is_relative_to(folder.resolve()) for folder in policy.write):
            raise NotAllowed(
                f"'{config.name}' may write {real}, where its own code lies.", 'Name another folder under "write".'
            )
    return Box(config.name, [str(program), *args], {**env, **config.env}, policy, cwd or WORKDIR, seen, bindings)


def _behind_proxy(box: Box, socket: Path) -> Box:
    """The same with the way to the proxy: its socket, and a program that leads there from a local port."""
    python = [str(Path(sys.executable).resolve()), "-I", "-S", BRIDGE, SOCKET, str(_PORT)]
    return replace(
        box,
        env={**_proxied(box.policy), **box.env},
        readable=[*box.readable, *python_runtime()],
        bindings=[*box.bindings, (socket, SOCKET), (Path(bridge.__file__).resolve(), BRIDGE)],
        first=python,
    )


def _proxied(policy: Policy) -> dict[str, str]:
    """What tells programs of a proxy, those of Node.js from 22.21 and 24 on included."""
    address = f"http://127.0.0.1:{_PORT}"
    hosts = " ".join(policy.network) if isinstance(policy.network, tuple) else ""
    # Its own loopback is the sandbox's, unless the list means the machine's.
    local = ",".join(name for name in ("localhost", "127.0.0.1", "::1") if name not in hosts)
    named = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": local}
    return {"NODE_USE_ENV_PROXY": "1", **named, **{name.lower(): value for name, value in named.items()}}


def _programs(readable: list[Path], program: Path) -> list[str]:
    """Folders with programs among what is seen."""
    folders = [program.parent, *(path / "bin" for path in readable)]
    return [str(folder) for folder in folders if folder.is_dir()]
