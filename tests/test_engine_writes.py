"""A catalogue that another process holds stops writes, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

from toolscout.server.engine import Engine
from toolscout.settings import Settings

TINY = Path(__file__).parent / "upstreams" / "tiny.py"


async def test_searches_do_not_wait_behind_writes_that_wait_for_the_lock(settings: Settings) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(TINY)]}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"tiny": entry}}))
    async with Engine(settings.model_copy(update={"upstream_start_timeout": 120.0}), serving=True) as engine:
        await asyncio.wait_for(engine.loaded(), 180)
        assert engine.tool_count > 0
        other = sqlite3.connect(settings.home / "catalogue.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        # More than there are threads for searches; each lists the server, and then waits to write.
        writes = [asyncio.create_task(engine.refresh_server("tiny")) for _ in range(3)]
        try:
            await asyncio.wait_for(engine.pool.list_tools("tiny", fresh=True), 30)
            await asyncio.sleep(0.5)
            found = await asyncio.wait_for(engine.find_tools("answers what it gets"), 25)
            assert "tools" in found
            assert not any(write.done() for write in writes)
        finally:
            other.execute("ROLLBACK")
            other.close()
        changes = await asyncio.wait_for(asyncio.gather(*writes), 60)
        assert len(changes) == 3
