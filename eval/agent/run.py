"""The agent experiment: every task in every arm so many times, each trial from a fresh starting state, resumable."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from toolscout.errors import BadInput
from toolscout.eval.agent.check import failures, said
from toolscout.eval.agent.gaia import GaiaTask, read_gaia, right
from toolscout.eval.agent.loop import ARMS, Doing, Mind, act, need_library
from toolscout.eval.agent.score import Prices, score
from toolscout.eval.agent.servers import Fleet, build_home, by_coordinates, configured, lend_model, servers_mark
from toolscout.eval.agent.state import GIT_ENV, hand_over, place, serving
from toolscout.eval.agent.tasks import OWN_TASKS, Check, Coordinates, Start, Task, limited, read_tasks
from toolscout.eval.agent.trials import Trial, resume
from toolscout.eval.provenance import plain
from toolscout.eval.rows import Say, silent
from toolscout.eval.served import environment, who_serves
from toolscout.eval.work_file import alone, open_work
from toolscout.records import JsonObject, canonical_json, sha256_hex
from toolscout.settings import Settings

_START = 120.0
"""Seconds that a server gets to start: a slow machine is no fault of an arm's."""
_START_TIMEOUT = "upstream_start_timeout"
_DEFAULT_START = Settings.model_fields[_START_TIMEOUT].default
_NO_CHECK = [Check(answer=True, contains=["-"])]


@dataclass(frozen=True)
class AgentOptions:
    """What is run. ``tasks`` or ``gaia`` is the file of tasks; ``servers`` an mcp.json instead of the set's own."""

    mind: Mind
    tasks: Path = OWN_TASKS
    gaia: Path | None = None
    servers: Path | None = None
    arms: Sequence[str] = ARMS
    trials: int = 1
    limit: int | None = None
    seed: int = 0
    sandbox: str = "bubblewrap"
    install: Path | None = None
    """Where the set's servers are installed; by default in a folder that is gone afterwards."""


@dataclass
class AgentRun:
    """What came out."""

    result: JsonObject
    trials: list[Trial]
    tasks: dict[str, Task]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Todo:
    """The tasks as they lie in their file, and how each is judged."""

    tasks: Sequence[Task]
    servers: Mapping[str, Coordinates]
    gaia: Mapping[str, GaiaTask] = field(default_factory=dict)
    files: Path = field(default_factory=Path)
    """The folder of GAIA's files."""

    def asked(self, task: Task) -> str:
        """Changes with all of a task that decides an outcome, its truth and file where it is one of GAIA's."""
        row, told = self.gaia.get(task.id), [task.asked()]
        if row is not None:
            told.append(row.truth)
            if row.file_name:
                told.append(hashlib.sha256((self.files / _name(row)).read_bytes()).hexdigest())
        return sha256_hex("\n".join(told))[:16]


def measure_agent(
    options: AgentOptions,
    *,
    settings: Settings,
    prices: Prices | None = None,
    work: Path | None = None,
    say: Say = silent,
) -> AgentRun:
    """Run what ``work`` does not hold yet, and score everything.

    ``settings`` are those of the Toolscout that is measured (encoder, model of suggest_call); its home is a throw-away
    one. Raises BadInput for options or files that do not fit, UpstreamError for a server that cannot be started and
    ModelError for an endpoint that fails: what was done by then is in ``work``.
    """
    need_library()
    unknown = [arm for arm in options.arms if arm not in ARMS]
    if unknown or not options.arms:
        raise BadInput(f"There is no arm {unknown[0] if unknown else ''!r}.", f"Arms are {', '.join(ARMS)}.")
    if not options.mind.url or not options.mind.model:
        raise BadInput("The agent needs a model.", "Name an endpoint with --model-url and its model with --model.")
    todo = _todo(options)
    with alone(work):
        header = _header(options, todo, settings)
        before = resume(work, header) if work is not None else {}
        asked_of = [(task, todo.asked(task)) for task in todo.tasks]
        keys = [
            (task.id, arm, number, asked)
            for number in range(1, options.trials + 1)
            for task, asked in asked_of
            for arm in dict.fromkeys(options.arms)
        ]
        done = {key: before[key] for key in keys if key in before}
        left = [key for key in keys if key not in done]
        if done:
            say(f"{len(done)} of {len(keys)} trials were done before")
        if left:
            tasks = {task.id: task for task in todo.tasks}
            asyncio.run(_run(left, tasks, todo, options, settings, done, work, header, say))
    trials = [done[key] for key in keys]
    warnings = []
    if len(todo.tasks) < 30:
        warnings.append(f"{len(todo.tasks)} tasks: differences between arms of a few tasks are noise.")
    result = score(trials, prices or Prices(), options.mind.model, list(dict.fromkeys(options.arms)))
    return AgentRun(result, trials, {task.id: task for task in todo.tasks}, warnings)


def _todo(options: AgentOptions) -> _Todo:
    if options.gaia is None:
        tasks, servers = read_tasks(options.tasks)
        return _Todo(limited(tasks, options.limit, options.seed), servers)
    rows = {row.task_id: row for row in read_gaia(options.gaia)}
    tasks = [
        Task(
            id=row.task_id,
            request=row.question + (f"\nThe file of this task is {{folder}}/{_name(row)}." if row.file_name else ""),
            servers=[],
            # Never used: GAIA's answers are judged by its own rule.
            checks=_NO_CHECK,
            split=f"level {row.level}" if row.level else "",
            level=row.level,
        )
        for row in rows.values()
    ]
    if options.servers is None:
        raise BadInput("GAIA needs servers of yours: search, a browser, files.", "Name an mcp.json with --servers.")
    return _Todo(limited(tasks, options.limit, options.seed), {}, rows, options.gaia.parent)


def _name(row: GaiaTask) -> str:
    return Path(row.file_name).name


def _header(options: AgentOptions, todo: _Todo, settings: Settings) -> JsonObject:
    """What a work file is of: outcomes of another model, Toolscout or servers, or under other limits, are not gone on
    with. Tasks stand in the trials' own keys.
    """
    mind = options.mind
    toolscout = who_serves(settings)
    if _patience(settings) == _DEFAULT_START:  # named, and not the longer time that stands for it elsewhere
        toolscout["settings"][_START_TIMEOUT] = f"{_DEFAULT_START}"
    own = {name: at.model_dump(mode="json") for name, at in todo.servers.items()}
    return {
        "agent": 3, "model": mind.model, "model_url": plain(mind.url), "turns": mind.turns, "seconds": mind.seconds,
        "temperature": mind.temperature, "answers": mind.answers, "max_tokens": mind.max_tokens,
        "gaia": options.gaia is not None,
        "servers": servers_mark(options.servers) if options.servers else sha256_hex(canonical_json(own))[:16],
        "sandbox": None if options.servers else options.sandbox, "toolscout": toolscout,
    }  # fmt: skip


async def _run(
    left: Sequence[tuple[str, str, int, str]],
    tasks: Mapping[str, Task],
    todo: _Todo,
    options: AgentOptions,
    settings: Settings,
    done: dict[tuple[str, str, int, str], Trial],
    work: Path | None,
    header: JsonObject,
    say: Say,
) -> None:
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="toolscout-agent-", ignore_cleanup_errors=True))
        )
        folder, site, home = _folders(root)
        pages = stack.enter_context(serving(site))
        fleet = await _fleet(todo, options, folder, pages, root, say)
        hand_over(folder, fleet.uid)
        mine = _mine(settings, home)
        if "bootstrap" in options.arms:
            lend_model(mine, settings)
        if any(arm != "all" for _, arm, _, _ in left):
            say(f"{await build_home(fleet, mine, say)} tools of {len(fleet.entries)} servers are indexed")
        say(f"{len(left)} trials to do")
        sink = stack.enter_context(open_work(work, header)) if work is not None else None
        serving_env = _environment(mine)
        began = time.monotonic()
        for number, key in enumerate(left, start=1):
            task_id, arm, trial, asked = key
            task = tasks[task_id].filled(folder, pages)
            place(task.start, folder, site)
            row = todo.gaia.get(task_id)
            if row is not None and row.file_name and options.gaia is not None:
                shutil.copyfile(options.gaia.parent / _name(row), folder / _name(row))
            hand_over(folder, fleet.uid)
            doing = await act(task.request, arm, options.mind, fleet.entries, home, serving_env, root / "servers.log")
            wrong = _wrong(task, row, folder, doing)
            done[key] = Trial.of(task, arm, trial, asked, doing, wrong)
            if sink is not None:
                sink.write(json.dumps(asdict(done[key]), ensure_ascii=False) + "\n")
                sink.flush()
            if number in (1, 5) or number % 10 == 0:
                minutes = (time.monotonic() - began) / number * (len(left) - number) / 60
                passed = sum(t.passed for t in done.values())
                say(f"{number} of {len(left)} trials, about {minutes:.0f} min left; {passed} passed so far")
        place(Start(), folder, site)


def _mine(settings: Settings, home: Path) -> Settings:
    """The settings over the throw-away home; who names no time to start gets the long one.

    The other arms have the fleet's tools alone, so without a pack that was named this one finds no others, either.
    """
    pack = settings.pack if "pack" in settings.model_fields_set else "off"
    return settings.model_copy(
        update={"home": home, "database": "", "starter": False, "pack": pack, _START_TIMEOUT: _patience(settings)}
    )


def _patience(settings: Settings) -> float:
    """Seconds that a server gets to start; a time that was named holds, also if it is the default."""
    return settings.upstream_start_timeout if _START_TIMEOUT in settings.model_fields_set else _START


def _folders(root: Path) -> tuple[Path, Path, Path]:
    """The trial's folder, the site's and Toolscout's home. A server of another user may enter the first alone."""
    root.chmod(0o711)
    for name, mode in (("trial", 0o755), ("site", 0o700), ("home", 0o700), ("work", 0o755)):
        (root / name).mkdir(mode=mode)
    return root / "trial", root / "site", root / "home"


async def _fleet(todo: _Todo, options: AgentOptions, folder: Path, pages: str, root: Path, say: Say) -> Fleet:
    if options.servers is not None:
        return configured(options.servers, folder, pages)
    if not todo.servers:
        raise BadInput(f"{options.tasks} names no servers.", "Name an mcp.json with --servers.")
    return await by_coordinates(todo.servers, folder, pages, options.install or root / "work", options.sandbox, say)


def _wrong(task: Task, row: GaiaTask | None, folder: Path, doing: Doing) -> list[str]:
    if row is None:
        return failures(task, folder, doing.answer)
    return [] if right(doing.answer, row.truth) else [f"answer: {said(doing.answer)[:80]!r} is not the truth"]


def _environment(settings: Settings) -> dict[str, str]:
    """Of the caller's variables what a program needs; of Toolscout's those of the settings that are measured."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLSCOUT_", "GIT_"))} | GIT_ENV
    return env | environment(settings)
