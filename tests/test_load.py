"""The load bench itself, for a few seconds: it measures real calls in both eras, beside FastMCP's proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "benchmarks" / "load.py"


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    out = folder / "load.json"
    short = ["--clients", "8", "--minutes", "0.1", "--warmup", "1", "--json", str(out)]
    done = subprocess.run([sys.executable, str(BENCH), *short, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "calls per client" in done.stdout
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["errors"] == {} and found["calls"] > 0
    assert all(0 < fair["jain"] <= 1 for fair in found["per_client"].values())
    return found


@pytest.mark.slow
def test_calls_are_counted_in_both_eras_and_beside_the_proxy(tmp_path: Path) -> None:
    found = measured(tmp_path, "--era", "mixed", "--workers", "2")
    assert set(found["tools"]) == {"find_tools", "invoke"}
    assert {era: fair["clients"] for era, fair in found["per_client"].items()} == {"legacy": 4, "modern": 4}
    assert found["calls"] == sum(tool["calls"] for tool in found["tools"].values())
    proxy = measured(tmp_path, "--invoke-share", "1", "--against", "proxy")
    assert set(proxy["tools"]) == {"invoke"}
