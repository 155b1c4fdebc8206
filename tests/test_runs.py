"""The scripts in ``runs/``: every command of Toolscout's there exists, knows its options and gets what it needs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolscout.commands import reference

SCRIPTS = sorted((Path(__file__).parents[1] / "runs").glob("*.*sh"))
COMMANDS = {command.path.removeprefix("toolscout "): command for command in reference.commands()}

WRAPPERS = {
    ("execute.sh", "execute"): "eval execute", ("measure_search.sh", "measure"): "eval retrieval",
    ("needle.sh", "measure"): "eval {2}",
}  # fmt: skip
"""Functions that hand their words on to one command, by script; ``{2}``: their second word is in its name."""

HANDED_ON = {
    r'train_encoder\.sh"(?P<words> .*)': "train encoder", r'train_caller\.sh"(?P<words> .*)': "train caller",
    r'\bROWS="(?P<words>[^"]*)"': "train caller-rows",
}  # fmt: skip
"""Scripts and variables whose options a script of ours hands on to a command."""

_CALL = re.compile(r'(?:(?<![\w"./-])(?:run|toolscout)|-m toolscout|"\$\{toolscout\[@\]\}") +(?P<words>[a-z].*)')
_MODULE = re.compile(r"-m (?P<name>toolscout\.[\w.]+)(?P<words>.*)")
_ARRAY = re.compile(r"\b(?P<name>\w+)\+?=\((?P<words>[^\n]*?)\)(?:$|[\s;}])", re.MULTILINE)
_OPTION = re.compile(r"(?<![^\s+(])--?[a-z][a-z-]*(?![\w-])")
_END = re.compile(r" -- | \| | > |; | &&? |<<<|\)\"? ?[|>]")
"""Where a command's own words end; what follows ``--`` is another program's."""


@dataclass(frozen=True)
class Line:
    """A command of Toolscout's as it stands in a script, its arrays of options filled in."""

    command: str
    words: str
    open: bool
    """Whether it takes words of the script's own arguments, or of its variables, that nobody sees here."""

    @property
    def options(self) -> set[str]:
        return set(_OPTION.findall(re.sub(r'"[^"]*"|\'[^\']*\'', "", self.words)))


def logical(script: Path) -> list[str]:
    """The lines without comments, Python and what is said to people, those that go on joined."""
    text = re.sub(r"(?ms)^([^\n]*<<'PY')$.*?^PY$", r"\1", script.read_text("utf-8"))
    text = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)(^|\s)#[^\n]*$", "", text))
    text = re.sub(r"(?m)^ *\w+=\((?:[^)\n]*\n)+[^\n]*\)$", lambda array: re.sub(r"\n\s*", " ", array[0]), text)
    return [re.sub(r'\b(?:echo|printf) (?:"[^"]*"|\'[^\']*\').*', "", line) for line in text.splitlines()]


def filled(words: str, arrays: dict[str, str]) -> str:
    """Arrays in the place of their names; a guard like ``${x[@]+...}`` is one of them, too."""
    for _ in range(3):
        words = re.sub(r'"\$\{(\w+)\[@\]\}"', lambda m: arrays.get(m[1], m[0]), words)
    return words


def lines(script: Path) -> Iterator[Line]:
    """Every command of Toolscout's in a script. Fails on one that there is not."""
    found = logical(script)
    arrays: dict[str, str] = {}
    for array in _ARRAY.finditer("\n".join(found)):
        arrays[array["name"]] = f"{arrays.get(array['name'], '')} {array['words']}"
    for line in found:
        for (name, wrapper), target in WRAPPERS.items():
            if script.name == name and (call := re.match(rf"\s*{wrapper} (?P<words>[\w\"$].*)", line)):
                second = re.sub(r'"[^"]*"', "X", call["words"]).split()[1]
                yield _line(target.format("", "", second), call["words"], arrays, wrapped=True)
        if (call := _CALL.search(line)) and "$command" not in line:
            words = _END.split(call["words"])[0]
            path = next((p for p in (" ".join(words.split()[:n]) for n in (3, 2, 1)) if p in COMMANDS), None)
            assert path, f"{script.name}: there is no command {words[:40]!r}"
            yield _line(path, words, arrays)
        for pattern, command in HANDED_ON.items():
            if handed := re.search(pattern, line):
                yield _line(command, handed["words"], arrays, wrapped=True)


def _line(command: str, words: str, arrays: dict[str, str], *, wrapped: bool = False) -> Line:
    whole = filled(words, arrays)
    return Line(command, whole, wrapped or '"$@"' in whole or "[@]" in whole)


def option_names(command: str) -> tuple[set[str], set[str]]:
    """All option names of a command, and those that it needs."""
    known, needed = {"--help"}, set()
    for parameter in COMMANDS[command].parameters:
        names = re.findall(r"(?:^|, )(--?[a-z][a-z-]*)", parameter.written)
        known |= set(names)
        if parameter.is_option and parameter.default == "required":
            needed.add(names[0])
    return known, needed


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_commands_and_options_exist(script: Path) -> None:
    for line in lines(script):
        known, needed = option_names(line.command)
        assert line.options <= known, f"{line.command}: {sorted(line.options - known)} in {line.words}"
        if not line.open:
            assert needed <= line.options, f"{line.command}: lacks {sorted(needed - line.options)}"
    for text in logical(script):
        if call := _MODULE.search(text):
            spec = importlib.util.find_spec(call["name"])
            assert spec is not None and spec.origin is not None, call["name"]
            source = Path(spec.origin).read_text("utf-8")
            for option in Line("", _END.split(call["words"])[0], True).options:
                assert f'"{option}"' in source, f"{call['name']}: {option}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_bash_and_shows_its_head(script: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    assert subprocess.run([bash, "-n", script]).returncode == 0
    told = re.search(r"sed -n '2,(\d+)s", script.read_text("utf-8"))
    if told is not None:  # without arguments the head is shown, all of it and nothing else
        text = script.read_text("utf-8").splitlines()
        assert text[int(told[1]) - 1].startswith("#") and text[int(told[1])].startswith("set "), told[0]


def test_the_reading_finds_what_is_there() -> None:
    """A pattern that matches nothing would let every script pass."""
    paper = next(script for script in SCRIPTS if script.name == "paper.sh")
    found = {line.command for line in lines(paper)}
    assert found >= {
        "crawl", "catalog import", "synth calls", "synth plans", "synth split", "synth trajectories", "train caller",
        "model serve", *(f"eval {name}" for name in (
            "retrieval", "needle", "apibank", "adopt", "calls", "strategies", "plan", "execute", "agent", "servers",
            "setup", "scaling")),
    }  # fmt: skip
    synth = next(line for line in lines(paper) if line.command == "synth calls")
    assert synth.options >= {"--second-model", "--cache", "--ray"} and not synth.open, "of an array of three lines"
    agent = next(line for line in lines(paper) if line.command == "eval agent")
    assert agent.options >= {"--model", "--caller", "--caller-url", "--gaia", "--servers", "--json", "--report"}
    assert sum(len(list(lines(script))) for script in SCRIPTS) >= 50


def test_a_wrong_option_and_a_missing_command_are_found(tmp_path: Path) -> None:
    script = tmp_path / "paper.sh"
    script.write_text(
        'run eval scaling --runs "0=x" --plots y > z --not-looked-at\nwho=(--model x)\nrun find --limit 3\n'
    )
    scaling = next(lines(script))
    assert scaling.options - option_names(scaling.command)[0] == {"--plots"}
    script.write_text("run evaluate --x\n")
    with pytest.raises(AssertionError, match="no command 'evaluate"):
        list(lines(script))
