"""What the user without an account, as whom packages are installed, can run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from crawl_work import needs_sandbox

from toolscout.crawler.install.pypi import _said


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs as another user")
def test_a_program_in_a_closed_folder_cannot_be_run(tmp_path: Path) -> None:
    assert _said(["/usr/bin/echo", "here"]) == "here"
    program = Path(shutil.copy("/usr/bin/echo", tmp_path / "echo"))
    tmp_path.chmod(0o700)
    assert _said([str(program), "here"]) == ""
