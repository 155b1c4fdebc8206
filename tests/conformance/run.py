"""The official MCP conformance suite against Toolscout, compared with the committed baselines.

    python tests/conformance/run.py [--tools FOLDER] [--results FOLDER] [REVISION ...]

Exit code 0: each requirement set fails exactly where its baseline says; 1: it does not; 2: the suite is not to be had.
Needs npm, and Toolscout with its test dependencies. What it means: docs/CONFORMANCE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node_tools import CONFORMANCE, KEPT, NodeTools, NoTools, node_tools  # noqa: E402
from serving import environment, listening  # noqa: E402

REVISIONS = ("2026-07-28", "2025-11-25")
# The client's side. Left out: auth/* (FastMCP's OAuth, which opens a browser) and what an upstream may ask of a user.
CLIENT = {
    "2026-07-28": [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ],
    "2025-11-25": ["initialize", "tools_call", "sse-retry"],
}
_SUITE_SECONDS = 1200
_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[-\d]+Z")


@dataclass(frozen=True)
class Outcome:
    """What the suite found in the scenarios that a revision requires. ``said``: its whole output."""

    revision: str
    agrees: bool
    gone: list[str]
    """Lines of the baseline whose check did not fail: it passed, was skipped, or is not there."""
    scenarios: int
    passed: int
    failed: int
    warned: int
    said: str

    @property
    def as_expected(self) -> bool:
        return self.agrees and not self.gone

    def report(self) -> str:
        """One paragraph for a person."""
        counts = f"{self.passed} checks passed, {self.failed} failed, {self.warned} warned"
        lines = [f"{self.revision}: of {self.scenarios} required scenarios {counts}."]
        if not self.agrees:
            told = self.said.partition("=== SUMMARY ===")[2] or self.said
            lines.append(f"The suite does not agree with {baseline(self.revision).name}:\n{told.strip()}")
        lines += [f"{line} no longer fails: take it out of {baseline(self.revision).name}." for line in self.gone]
        return "\n".join(lines)


def baseline(revision: str) -> Path:
    return HERE / f"baseline-{revision}.yml"


def expected(revision: str) -> list[str]:
    """The failures a baseline names, as ``scenario:check``."""
    return [str(line) for line in yaml.safe_load(baseline(revision).read_text())["server"]]


@contextlib.contextmanager
def toolscout(home: Path) -> Iterator[str]:
    """Toolscout over HTTP with the suite's tools behind it; yields the URL to test."""
    with listening([sys.executable, str(HERE / "front.py")], env=environment(home)) as url:
        yield f"{url}/mcp"


def run(tools: NodeTools, url: str, revision: str, results: Path) -> Outcome:
    """One requirement set; the suite leaves a folder of checks for every scenario in ``results``, a new folder."""
    command = tools.command(CONFORMANCE, "server", "--url", url, "--requirements", revision)
    command += ["--expected-failures", str(baseline(revision)), "--output-dir", str(results)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=tools.environment(), cwd=tools.folder, timeout=_SUITE_SECONDS
    )
    scored = set(
        yaml.safe_load((tools.package(CONFORMANCE) / "requirements" / f"{revision}.yaml").read_text())["server"]
    )
    checks = [(scenario, check) for scenario, check in _checks(results) if scenario in scored]
    failing = {f"{scenario}:{check['id']}" for scenario, check in checks if check["status"] in {"FAILURE", "WARNING"}}
    count = [check["status"] for _, check in checks]
    return Outcome(
        revision=revision,
        agrees=done.returncode == 0 and "SUMMARY" in done.stdout,
        gone=[line for line in expected(revision) if line not in failing],
        scenarios=len({scenario for scenario, _ in checks}),
        passed=count.count("SUCCESS"),
        failed=count.count("FAILURE"),
        warned=count.count("WARNING"),
        said=done.stdout + done.stderr,
    )


def run_client(tools: NodeTools, revision: str, scenario: str) -> tuple[bool, str]:
    """Whether a scenario passes with Toolscout as the client, without a warning; and what the suite said."""
    driver = shlex.join([sys.executable, str(HERE / "client.py")])
    options = ["--command", driver, "--scenario", scenario, "--spec-version", revision]
    command = tools.command(CONFORMANCE, "client", *options)
    done = subprocess.run(command, capture_output=True, text=True, env=tools.environment(), timeout=_SUITE_SECONDS)
    said = done.stdout + done.stderr
    return done.returncode == 0 and "OVERALL: PASSED" in said, said


def _checks(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(results.glob("server-*/checks.json")):
        scenario = _FOLDER.fullmatch(file.parent.name)
        assert scenario is not None, f"the suite names its folders anew: {file.parent.name}"
        for check in json.loads(file.read_bytes()):
            yield scenario[1], check


def main() -> int:
    parser = argparse.ArgumentParser(description="The official MCP conformance suite against Toolscout.")
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=f"of {REVISIONS}; default: all")
    parser.add_argument("--tools", type=Path, help="folder for the suite; kept (default: TOOLSCOUT_TEST_NODE_TOOLS)")
    parser.add_argument("--results", type=Path, help="keep what the suite writes in this folder, a new one")
    options = parser.parse_args()
    if options.results and options.results.exists():
        parser.error(f"{options.results} exists already: name a folder that does not.")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        try:
            tools = node_tools(options.tools or (Path(KEPT) if KEPT else place / "tools"))
        except NoTools as reason:
            print(f"The conformance suite is not to be had: {reason}.", file=sys.stderr)
            return 2
        with toolscout(place / "home") as url:
            outcomes = [
                run(tools, url, revision, (options.results or place / "results").absolute() / revision)
                for revision in options.revisions or REVISIONS
            ]
        refused = []
        for revision in options.revisions or REVISIONS:
            for scenario in CLIENT[revision]:
                passed, said = run_client(tools, revision, scenario)
                print(f"{revision}, as a client, {scenario}: {'passed' if passed else said}")
                refused += [] if passed else [scenario]
    for outcome in outcomes:
        print(outcome.report())
    return 0 if all(outcome.as_expected for outcome in outcomes) and not refused else 1


if __name__ == "__main__":
    sys.exit(main())
