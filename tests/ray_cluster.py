"""A real Ray cluster of two nodes on this machine, for the tests that want one."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_HEAD = """
import json, os, sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 100 << 20}
first, second = [{"env_vars": environment} for environment in json.loads(sys.argv[1])]
cluster = Cluster(initialize_head=True, head_node_args={**node, **first, "include_dashboard": False})
cluster.add_node(**node, **second)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.add_node(**node)
    print("added", flush=True)
cluster.shutdown()
"""


def quiet_and_private(patch: pytest.MonkeyPatch) -> None:
    """What a cluster and all that join it have in their environment."""
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # the loopback only
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextmanager
def two_nodes(*environments: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Their keeper: it prints the address, and adds a node for each line it reads. They end with this process: then
    the keeper's stdin closes. What Ray writes lies below `folder_of` meanwhile.

    Args:
        environments: what each of the two has in its environment beside what this process has.
    """
    with tempfile.TemporaryDirectory(prefix="ts-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "ray").mkdir()
        keeper = subprocess.Popen(
            [sys.executable, "-c", _HEAD, json.dumps(environments or ({}, {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "RAY_TMPDIR": folder},
        )
        yield keeper
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(60)


def address_of(keeper: subprocess.Popen[str]) -> str:
    """The address of the cluster that has just been started."""
    assert keeper.stdout is not None
    said = keeper.stdout.readline().strip()
    assert ":" in said, "the cluster did not start"
    return said


def folder_of(keeper: subprocess.Popen[str]) -> Path:
    """What the cluster's processes write into, their logs among it."""
    environment = Path(f"/proc/{keeper.pid}/environ").read_bytes().split(b"\0")
    return Path(next(e for e in environment if e.startswith(b"RAY_TMPDIR=")).decode().partition("=")[2])
