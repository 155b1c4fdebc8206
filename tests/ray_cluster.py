"""A real Ray cluster of two nodes on this machine, for the tests that want one."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_HEAD = """
import os, sys, tempfile, shutil
folder = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ts-ray-", dir="/tmp")
os.mkdir(f"{folder}/ray")
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 100 << 20}
cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
cluster.add_node(**node)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.add_node(**node)
    print("added", flush=True)
cluster.shutdown()
shutil.rmtree(folder, ignore_errors=True)
"""


def quiet_and_private(patch: pytest.MonkeyPatch) -> None:
    """What a cluster and all that join it have in their environment."""
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # the loopback only
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextmanager
def two_nodes() -> Iterator[subprocess.Popen[str]]:
    """Their keeper: it prints the address, and adds a node for each line it reads. They end with this process: then
    the keeper's stdin closes."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", _HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
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
