"""Real clients that never stop asking, over HTTP and over stdio, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import random
from itertools import count
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp.shared.exceptions import MCPError

from chaos.judge import judged, left_alone, raised
from chaos.tally import Tally
from chaos.world import SHARED, STDIO, WEB, World

CALL_SECONDS = 4.0
_PATIENCE = 60.0
"""Longest that any call may stay without an answer: start, call and back-off limits together are well below."""
SETTLE = 4.0
"""Seconds until changed tools are listed again: Toolscout waits one for further changes, and two between looks."""
_HELD = ("not_approved", "unknown_tool")
_ROUNDED = 0.1
"""Seconds by which two announcements of the same moment may differ."""
_NUMBERS = count(1)


class Lost(Exception):
    """The connection to Toolscout itself broke."""


def request(operation: str, upstream: str, nonce: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of one of the three tools."""
    if operation == "find":
        return "find_tools", {"query": "send back a text", "limit": 3}
    if operation == "suggest":
        return "suggest_call", {"task": "Send back the text hello", "tool_ids": [f"{upstream}/echo"]}
    arguments = {"tool_id": f"{upstream}/echo", "arguments": {"nonce": nonce}, "timeout_s": CALL_SECONDS}
    return "invoke", arguments


async def ask(client: Client[Any], operation: str, upstream: str, patience: float = _PATIENCE) -> tuple[str, str, str]:
    """One call: outcome, its kind (see `judge`), and the text of an error. Raises Lost.

    One that is not answered within ``patience`` seconds is waited for as long again, to tell late from never.
    """
    nonce = f"n-{next(_NUMBERS)}"
    name, arguments = request(operation, upstream, nonce)
    call = asyncio.create_task(client.call_tool(name, arguments, raise_on_error=False))
    try:
        in_time = (await asyncio.wait([call], timeout=patience))[0]
        if not in_time:
            late = (await asyncio.wait([call], timeout=patience))[0]
            return "silent", f"{name} was {'answered late' if late else 'never answered'} ({patience:g} s)", ""
        result = call.result()
    except MCPError as error:
        if error.error.message.startswith("Connection closed"):
            raise Lost(str(error)) from None
        return *raised(error.error.code, error.error.message), error.error.message
    except Exception as error:
        raise Lost(f"{type(error).__name__}: {error}") from error
    finally:
        call.cancel()
    text = "\n".join(getattr(block, "text", "") for block in result.content) if result.is_error else ""
    return *judged(operation, nonce, result), text


class LoadClient:
    """One client; ``stdio`` ones start a Toolscout of their own, and a new one every ``life`` seconds."""

    def __init__(self, number: int, world: World, tally: Tally, seed: int, *, stdio: bool, life: float = 30.0) -> None:
        self.name = f"{'stdio' if stdio else 'http'}-{number}"
        self._world = world
        self._tally = tally
        self._random = random.Random(f"{seed}/{self.name}")
        self._stdio = stdio
        self._life = life
        self._mode = "auto" if number % 2 else "legacy"
        self._asked_since: dict[str, float] = {}
        self._until: dict[str, tuple[float, float]] = {}

    def _client(self) -> Client[Any]:
        if not self._stdio:
            return Client(f"{self._world.url}/mcp", mode=self._mode)
        command, *args = self._world.command("serve")
        env = self._world.environment(TOOLSCOUT_POLICY=str(self._world.folder / "policy.toml"))
        transport = StdioTransport(command, args, env=env, keep_alive=False, log_file=self._world.stdio_log)
        return Client(transport, mode=self._mode)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until ``stop``."""
        while not stop.is_set():
            began, connected = self._tally.now(), False
            try:
                async with asyncio.timeout(_PATIENCE):
                    client = await self._client().__aenter__()
                connected = True
                try:
                    await self._session(client, stop)
                finally:
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(20):
                            await client.__aexit__(None, None, None)
            except Lost as error:
                self._lost(began, f"lost in a call: {error}")
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._lost(began, f"{'left' if connected else 'no connection'}: {type(error).__name__}: {error}"[:300])
            await asyncio.sleep(0.2)

    def _lost(self, began: float, what: str) -> None:
        self._tally.calls["connections lost"] += 1
        self._tally.violate("server answers", f"{self.name} (since {began:.0f} s): {what}")

    async def _session(self, client: Client[Any], stop: asyncio.Event) -> None:
        until = self._tally.now() + self._life * self._random.uniform(0.5, 1.5)
        # The gate shakes hands before anything is imported: the first call waits for that, on a machine that is busy.
        patience = 3 * _PATIENCE if self._stdio else _PATIENCE
        while not stop.is_set() and not (self._stdio and self._tally.now() > until):
            operation = self._random.choices(("invoke", "find", "suggest"), (70, 20, 10))[0]
            upstream = self._random.choice((*STDIO, WEB))
            fault, quiet, began = self._tally.active, self._tally.quiet_since, self._tally.now()
            outcome, kind, text = await ask(client, operation, upstream, patience)
            patience = _PATIENCE
            fault = fault or self._tally.active
            calm = not fault and quiet > 0 and began >= quiet and self._tally.quiet_since == quiet
            self._note(operation, upstream, outcome, kind, text, fault, calm, (self._tally.now() - began) * 1000)
            await asyncio.sleep(self._random.uniform(0.02, 0.25))

    def _note(
        self, operation: str, upstream: str, outcome: str, kind: str, text: str, fault: str, calm: bool, ms: float
    ) -> None:
        tally = self._tally
        tally.calls[f"{self.name.partition('-')[0]} {operation}"] += 1
        tally.outcomes[fault or ("calm" if calm else "after a fault")][outcome] += 1
        slot = f"{fault or 'calm'}: {operation}"
        tally.longest[slot] = max(tally.longest[slot], round(ms))
        where = f"{self.name} {operation} {upstream}"
        if outcome == "error":
            tally.errors[f"{fault or 'calm'}: {kind}"] += 1
            if calm and not self._recovering(upstream, kind, text, tally.now() - ms / 1000):
                tally.violate("no error in calm", f"{where}: {text[:300]}")
        elif outcome == "wrong":
            tally.violate("right answer to the right client", f"{where}: {kind}")
        elif outcome == "untyped":
            tally.violate("every error typed", f"{where}: {kind}")
        elif outcome == "silent":
            tally.violate("every call answered", f"{where}: {kind}")
        if calm and operation == "invoke":  # the others do not reach the upstream
            self._asked_since[upstream] = tally.quiet_since

    def _recovering(self, upstream: str, kind: str, text: str, began: float) -> bool:
        """Whether an error in calm is the rest of a fault: this client's process of the upstream was not tried since.

        Where it is left alone, only until the moment that its first refusal in this calm has named; where a tool is
        held, until its server has been listed again for the first call that was refused.
        """
        if not self._stdio and upstream in SHARED:
            return False
        quiet, wait = self._tally.quiet_since, left_alone(text)
        first = self._stdio and self._asked_since.get(upstream) != quiet
        if kind == "left_alone":
            self._tally.waited["calm"] = max(self._tally.waited["calm"], wait)
        elif first:
            wait = SETTLE
        elif kind not in _HELD:
            return False
        if (first or kind == "left_alone") and self._until.get(upstream, (0.0, 0.0))[0] != quiet:
            self._until[upstream] = quiet, self._tally.now() + wait + _ROUNDED
        since, until = self._until.get(upstream, (0.0, 0.0))
        return (first and kind != "left_alone") or (since == quiet and began + left_alone(text) <= until)
