"""Which files a program needs to run at all: itself, its interpreter, and the environment that both lie in."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from toolscout.bubblewrap import SYSTEM

_SCRIPTED = re.compile(r"(python|pypy)[\d.]*|node|nodejs|bun|deno|ruby|perl|php|(ba|z|da)?sh")
_DEPTH = 8
_INSTALLATION = (
    *("bin", "Scripts", "lib", "lib32", "lib64", "Lib", "libexec", "share", "include", "pyvenv.cfg"),
    *("conf", "jmods", "ssl"),  # of Java, of conda
)


def runtime(program: Path) -> list[Path]:
    """Paths outside of the system's folders that a program is made of, links and interpreter followed."""
    found: dict[Path, None] = {}
    _follow(Path(os.path.abspath(program)), found, _DEPTH)  # noqa: PTH100  (resolve would follow the links)
    return list(found)


def python_runtime() -> list[Path]:
    """The Python that runs Toolscout, without Toolscout's own packages."""
    base = Path(sys.base_prefix).resolve()
    return [] if _of_system(base) else [base]


def own_code(command: str, args: tuple[str, ...], cwd: str | None) -> Path | None:
    """The folder of the script that an interpreter is given: the code that is meant to run, and what lies beside it.

    Of a script anywhere in a project (``package.json``, ``pyproject.toml``) it is the project's; never a home folder.
    """
    if _SCRIPTED.fullmatch(Path(command).name) is None:
        return None
    given = next((arg for arg in args if not arg.startswith("-") and arg != "run"), None)
    if given is None or (cwd is None and not Path(given).expanduser().is_absolute()):
        return None
    script = Path(cwd or "/", given).resolve()
    if not script.is_file() or _of_system(script):
        return None
    for folder in script.parents:
        if is_broad(folder):
            break
        if (folder / "package.json").is_file() or (folder / "pyproject.toml").is_file():
            return folder
    return script if is_broad(script.parent) else script.parent


def wants_npm_install(folders: list[Path]) -> bool:
    """Whether a Python package in these environments brings a part for Node.js whose own packages are not installed."""
    inside = "lib/python*/site-packages/*/*/package.json"
    found = (path for folder in folders for where in (inside, f"tools/*/{inside}") for path in folder.glob(where))
    return any(not (manifest.parent / "node_modules").exists() for manifest in found)


def _follow(path: Path, found: dict[Path, None], depth: int) -> None:
    """Note ``path``, what it links to, and what its first line names."""
    if depth == 0 or _of_system(path):
        # A link out of the system's folders (/usr/local/bin/x -> ~/x) still has to lead somewhere.
        if depth and path.is_symlink():
            _follow(_target(path), found, depth - 1)
        return
    if not path.is_file():  # a name in pyvenv.cfg or after #! opens no folder by itself
        return
    prefix = path.parent.parent
    whole = path.parent.name in ("bin", "Scripts") and not is_broad(prefix) and prefix.name != ".local"
    if not any(path.is_relative_to(p) for p in found):
        for kept in _parts(prefix) if whole else [path]:
            found[kept] = None
            if whole and (real := kept.resolve()) != kept:
                _follow_folder(real, found)
    if (config := prefix / "pyvenv.cfg").is_file():
        home = re.search(r"^home\s*=\s*(.+)$", config.read_text("utf-8", "replace"), re.MULTILINE)
        if home:
            _follow(Path(home[1].strip()) / "python3", found, depth - 1)
    if path.is_symlink():
        _follow(_target(path), found, depth - 1)
    elif path.is_file() and (interpreter := _shebang(path)) is not None:
        _follow(interpreter, found, depth - 1)


def _parts(prefix: Path) -> list[Path]:
    """What a program may need of the folder above its ``bin``.

    In a home tokens lie beside the programs (``~/.cargo/credentials.toml``), so only what installations are made of.
    """
    home = Path.home()
    if not prefix.is_relative_to(home) and not prefix.resolve().is_relative_to(home.resolve()):
        return [prefix]
    return [part for name in _INSTALLATION if (part := prefix / name).exists()]


def _follow_folder(real: Path, found: dict[Path, None]) -> None:
    if not _of_system(real) and not any(real.is_relative_to(p) for p in found):
        found[real] = None


def _target(link: Path) -> Path:
    return Path(os.path.normpath(link.parent / link.readlink()))


def _shebang(path: Path) -> Path | None:
    with path.open("rb") as file:
        line = file.readline(512)
    words = line[2:].split() if line.startswith(b"#!") else []
    # /usr/bin/env NAME is looked up on the PATH inside.
    return Path(os.fsdecode(words[0])) if words and words[0].startswith(b"/") else None


def _of_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def is_broad(folder: Path) -> bool:
    """Whether a folder is a home, or holds homes, or is as broad as one."""
    home = Path.home()
    broad = {Path("/"), Path("/home"), Path("/root"), Path("/tmp"), Path("/var"), Path("/opt"), Path("/etc"), home}
    return folder in broad or home.is_relative_to(folder) or folder.parent == Path("/home")


def alone(name: str, path: Path) -> str:
    """Say how a file is written that lies in too broad a folder: most servers make a new file beside it first."""
    return (
        f"{path.parent} is not opened for {path.name}: put it into a folder of its own, name that in the entry, and "
        f"open it: toolscout set {shlex.quote(name)} --allow-write FOLDER"
    )
