"""Interpreters that are here, and do not start where servers run: said before the first package."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawl_work import LIMITS, SANDBOXES, needs_node, needs_sandbox, run_cli, work_folder

from toolscout.crawler.station import keep_starting, open_installers
from toolscout.errors import NotAllowed

pytestmark = [needs_sandbox, needs_node]


@pytest.fixture
def work() -> Iterator[Path]:
    yield from work_folder()


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_node_that_the_sandbox_does_not_show(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hidden = _program(work / "hidden" / "node", f'exec {shutil.which("node")} "$@"')
    node = _program(work / "shown" / "bin" / "node", f'exec {hidden} "$@"')
    monkeypatch.setenv("PATH", f"{node.parent}:/usr/local/bin:/usr/bin:/bin")
    told: list[str] = []
    usable = keep_starting(SANDBOXES[0](), open_installers(work, LIMITS), LIMITS, told.append)
    assert "npm" not in usable and "pypi" in usable
    assert told[0].startswith(f"npm packages are left out: {node} does not start in the sandbox: ")
    assert "not found" in told[0] and "a folder that every user may enter" in told[0]
    with pytest.raises(NotAllowed, match=r"npm: .*node does not start in the sandbox"):
        keep_starting(SANDBOXES[0](), {"npm": open_installers(work, LIMITS)["npm"]}, LIMITS)


def test_a_python_that_cannot_be_run_is_named_with_the_reason(work: Path, home: Path) -> None:
    why = "error while loading shared libraries: libpython3.12.so"
    python = _program(work / "python3.12", f"echo '{why}' >&2; exit 127")
    line = ["crawl", "--work", str(work / "w"), "--python", str(python), "--limit", "1"]
    done = run_cli(*line, env={"TOOLSCOUT_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert f"pypi packages are left out: --python {python} cannot be run by the unprivileged user: {why}" in done.stderr
    done = run_cli(*line, "--python", "/usr/bin/python3", env={"TOOLSCOUT_HOME": str(home)})
    assert f"Not used for pypi packages: --python {python} cannot be run" in done.stderr
