"""What goes out of a crawl: which of several copies stands for them, facts in one form, and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolscout.crawler.charts import percent
from toolscout.crawler.deploy import Outcome, Start
from toolscout.crawler.export import entities, into_catalogue
from toolscout.crawler.failures import Failure, Verdict
from toolscout.crawler.install.base import Entry, Installed, Metadata
from toolscout.crawler.listing import Listing
from toolscout.crawler.report import report, write_report
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch
from toolscout.crawler.standing import first_of
from toolscout.crawler.state import State
from toolscout.crawler.tidy import homepage, licence
from toolscout.index.catalogue import Catalogue
from toolscout.records import Install, Server, ServerState

# --- copies ----------------------------------------------------------------------------------------------------------


def server(package: str, homepage: str | None = None, state: ServerState = ServerState.NEEDS_INSTALL) -> Server:
    """A record as the crawl makes it."""
    return Server(
        server_id=f"npm/{package}",
        name=package,
        description="",
        homepage=homepage,
        install=Install(registry="npm", package=package),
        state=state,
    )


@pytest.mark.parametrize(
    ("kept", "copy"),
    [
        (("@openbnb/mcp-server-airbnb", None), ("@borski/mcp-server-airbnb", None)),
        (("@angiejones/mcp-selenium", None), ("@rayven122/mcp-selenium", "https://github.com/rayven122/mcp-selenium")),
        (
            ("youtube-data-mcp-server", None),
            ("my-youtube-data-mcp", "https://github.com/mychox68/my-youtube-data-mcp#readme"),
        ),
        (
            ("@f4ww4z/mcp-mysql-server", "https://github.com/f4ww4z/mcp-mysql-server"),
            ("@arronbillwsy61/mcp-server-mysql", "https://github.com/f4ww4z/mcp-mysql-server"),
        ),
        (
            ("@theyahia/dadata-mcp", "https://github.com/theYahia/dadata-mcp#readme"),
            ("@a/dadata-mcp", "https://github.com/theYahia/dadata-mcp#readme"),
        ),
        (
            ("figma-console-mcp", "https://github.com/southleft/figma-console-mcp"),
            ("@mp3/figma-console-mcp", "https://github.com/mp3/figma-console-mcp"),
        ),
        (("@anaisbetts/mcp-installer", None), ("@yu/cursor-mcp-installer", None)),
    ],
)
def test_the_original_stands_for_its_copies(kept: tuple[str, str | None], copy: tuple[str, str | None]) -> None:
    one, two = server(*kept), server(*copy)
    assert first_of([one, two])[0] is first_of([two, one])[0] is one


def test_what_can_be_had_and_what_is_in_use_come_before_names() -> None:
    plain, fork = server("a-mcp"), server("@x/my-a-mcp")
    assert first_of([plain, fork], lambda i: i == fork.server_id)[0] is fork
    gone = server("@x/my-a-mcp", state=ServerState.UNAVAILABLE)
    assert first_of([plain, gone], lambda i: i == gone.server_id)[0] is plain
    keyed = server("a-mcp", state=ServerState.NEEDS_KEY)
    assert first_of([keyed, fork])[0] is fork
    assert first_of([server("b-mcp"), server("c-mcp")], published={"npm/b-mcp": "2026", "npm/c-mcp": "2025"})[
        0
    ].server_id == ("npm/c-mcp")


def deployed(state: State, package: str, run: int, licence: str | None = None, link: str | None = None) -> None:
    """List a package and store tools for it."""
    state.begin_listing("npm", since=None, fresh=False)
    state.put_batch("npm", Batch([listed.found("npm", package)], None))
    state.end_listing("npm", complete=False)
    tools = [{"name": "t", "description": "Does something.", "inputSchema": {}}]
    for todo in state.todo():
        metadata = Metadata(package, "1.0.0", license=licence, homepage=link)
        start = Start(Entry(package, ("x",)))
        state.put_outcome(
            todo, Outcome(listing=Listing(tools=tools), start=start, installed=Installed(Path("/x"), metadata)), run
        )


def test_a_copy_that_the_catalogue_has_already_stays(tmp_path: Path) -> None:
    with State(tmp_path) as state, Catalogue(f"sqlite:///{tmp_path / 'catalogue.db'}") as catalogue:
        run = state.begin_run(1, "none")
        deployed(state, "@rayven122/mcp-selenium", run)
        into_catalogue(state, catalogue)
        deployed(state, "@angiejones/mcp-selenium", run)
        assert next(entities(state))[0].server_id == "npm/@angiejones/mcp-selenium"
        facts = {"npm/@angiejones/mcp-selenium": {"summary": "Drives a browser."}}
        into_catalogue(state, catalogue, facts=facts)
        kept = catalogue.get_server("npm/@rayven122/mcp-selenium")
        assert kept is not None and kept.summary == "Drives a browser."
        assert catalogue.get_server("npm/@angiejones/mcp-selenium") is None


# --- facts in one form -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("MIT License", "MIT"),
        ("mit", "MIT"),
        ("The MIT License (MIT)", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache2.0 License", "Apache-2.0"),
        ("GPLv3", "GPL-3.0-only"),
        ("UNLICENSED", "UNLICENSED"),
        ("Unlicense", "Unlicense"),
        ("SEE LICENSE IN LICENSE.md", "SEE LICENSE IN LICENSE.md"),
        ("(MIT OR Apache-2.0)", "(MIT OR Apache-2.0)"),
        ("MIT License\n\nCopyright (c) 2025 x\n\nPermission is hereby granted", "MIT"),
        ("NA", None),
        (None, None),
    ],
)
def test_licences(said: str | None, meant: str | None) -> None:
    assert licence(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("git+ssh://git@github.com/a/b.git", "https://github.com/a/b"),
        ("ssh://git@github.com/a/b", "https://github.com/a/b"),
        ("git@github.com:a/b.git", "https://github.com/a/b"),
        ("git://github.com/a/b", "https://github.com/a/b"),
        ("github:a/b", "https://github.com/a/b"),
        ("git+https://gitlab.com/a/b.git#readme", "https://gitlab.com/a/b#readme"),
        ("https://a.example/x", "https://a.example/x"),
        ("javascript:alert(1)", None),
        ("https://user:secret@a.example/x", None),
        ("http://[broken", None),
        ("somewhere", None),
        (None, None),
    ],
)
def test_homepages(said: str | None, meant: str | None) -> None:
    assert homepage(said) == meant


def test_facts_are_in_one_form_on_the_way_out(tmp_path: Path) -> None:
    with State(tmp_path) as state:
        deployed(state, "a-mcp", state.begin_run(1, "none"), "MIT License", "git@github.com:a/b.git")
        [(kept, _)] = entities(state)
        assert (kept.license, kept.homepage) == ("MIT", "https://github.com/a/b")


# --- the report ------------------------------------------------------------------------------------------------------


def failed(state: State, package: str, run: int, evidence: str) -> None:
    """List a package and store that it crashed."""
    state.begin_listing("npm", since=None, fresh=False)
    state.put_batch("npm", Batch([listed.found("npm", package)], None))
    state.end_listing("npm", complete=False)
    for todo in state.todo():
        verdict = Verdict(Failure.CRASHED, "status_1", evidence)
        metadata = Metadata(package, "1.0.0")
        state.put_outcome(todo, Outcome(verdict=verdict, installed=Installed(Path("/x"), metadata)), run)


def test_the_report_counts_and_shows(tmp_path: Path) -> None:
    with State(tmp_path) as state:
        run = state.begin_run(2, "bubblewrap")
        deployed(state, "@openbnb/mcp-server-airbnb", run, "MIT License")
        deployed(state, "@borski/mcp-server-airbnb", run)
        for number in range(198):
            failed(state, f"broken-{number:03d}", run, "Error at /srv/crawl/installs/2/node_modules/x/y.js <script>")
        state.tick_run(run, 3600.0)
        state.put_batch("npm", Batch([listed.found("npm", "later-mcp")], None, problems=("entry 7: no name <b>",)))
        made = write_report(state, tmp_path / "out", ["npm/@borski/mcp-server-airbnb"])
        again = report(state)
    assert (made["servers"], made["entities"], made["new_servers"], made["known"]) == (2, 1, 0, 1)
    assert again["new_servers"] is None and again["known"] is None
    assert made["waiting"] == {"npm": 1} and made["licences"] == {"MIT": 1}
    [one] = made["runs"]
    assert (one["tried"], one["with_tools"], one["rate"], one["workers"]) == (200, 2, 2.0, 2)
    assert made["timeline"][-1]["with_tools"] == 2 and made["timeline"][-1]["tried"] == 200
    assert sum(n for _, n in made["registries"]["npm"]["histograms"]["seconds"]) == 200
    assert made["findings"]["tools"] == 1 and made["traits"]["legacy"] == 2
    drawn = [e["server_id"] for e in made["examples"]["crashed"]]
    assert drawn != [f"npm/broken-{n:03d}" for n in range(5)], "a sample, not the first of the alphabet"
    assert made["examples"]["crashed"][0]["evidence"] == "Error at <installation>/node_modules/x/y.js <script>"
    page = (tmp_path / "out" / "crawl.html").read_text()
    assert "<script>" not in page and "no name <b>" not in page and "/srv/crawl" not in page
    for said in ("1.0 %", "of 200 npm packages gave tools", "new against 1 known", "entry 7"):
        assert said in page
    assert "hours since the first deployment" in page and "seconds, installing included" in page


def test_small_shares_never_read_as_nothing() -> None:
    assert [percent(n, 10_000) for n in (0, 1, 50, 500, 5000)] == ["0 %", "under 0.1 %", "0.5 %", "5.0 %", "50 %"]
    assert percent(1, 0) == "0 %"


def test_an_empty_crawl_has_a_report(tmp_path: Path) -> None:
    with State(tmp_path) as state:
        made = write_report(state, tmp_path / "out")
    assert made["servers"] == 0 and "Nothing was listed." in (tmp_path / "out" / "crawl.html").read_text()
