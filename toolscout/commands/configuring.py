"""``config``: the settings of the home's file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, emit, note, say, table
from toolscout.errors import BadInput
from toolscout.secret_store import open_store
from toolscout.settings import (
    CONFIG_FILE,
    PREFIX,
    SECRET_SETTINGS,
    GivenSettings,
    Settings,
    check_setting,
    home_folder,
    load_settings,
    parse_config,
    read_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(help="Change settings for every start, whichever program starts Toolscout.", no_args_is_help=True)


@app.command("list")
def list_settings(as_json: AsJson = False) -> None:
    """List every setting with its value and where that comes from: the environment, config.toml, or the default."""
    settings = load_settings()
    path = settings.home / CONFIG_FILE
    rows = [{"name": name, "value": _value(settings, name), "from": _origin(name, path)} for name in _names()]
    if as_json:
        emit(rows)
        return
    note(f"Settings of {path}; environment variables {PREFIX}NAME win over it.")
    table([[str(r["name"]), _shown(r["value"]), str(r["from"])] for r in rows], ["name", "value", "from"])


@app.command("get")
def get(name: Annotated[str, typer.Argument(help="A setting.")]) -> None:
    """Print the value in force of one setting."""
    check_setting(name)
    say(_shown(_value(load_settings(), name)))


@app.command("set")
def set_value(
    name: Annotated[str, typer.Argument(help="A setting.")],
    value: Annotated[str, typer.Argument(help="Its value; several of a list with commas between them.")],
) -> None:
    """Write a setting into config.toml.

    Example: "toolscout config set sandbox on".
    """
    path = write_settings(home_folder(), {name: value})
    say(f"{name} = {_in_force(name)} ({path})")
    if variable_of(name) in os.environ:
        note(f"{variable_of(name)} is set in this environment and wins over the file.")


@app.command("unset")
def unset(name: Annotated[str, typer.Argument(help="A setting.")]) -> None:
    """Take a setting out of config.toml: its default holds again."""
    import tomlkit

    from toolscout.files import locked, replace_file

    path = home_folder() / CONFIG_FILE
    with locked(path):
        if name not in parse_config(path):
            check_setting(name)
            raise BadInput(f"{name} is not set in {path}.")
        document = tomlkit.parse(path.read_text("utf-8"))
        document.remove(name)
        replace_file(path, tomlkit.dumps(document), mode=0o600, force_mode=True)  # a URL may hold a password
    say(f"{name} is {_in_force(name)} again." if name in Settings.model_fields else f"{name} is out of {path}.")


def write_settings(home: Path, given: Mapping[str, str]) -> Path:
    """Write settings, as text, into the home's file; the path of it.

    Raises BadInput for a name that is no setting, a secret, or a value that cannot be used: nothing is written then.
    """
    import tomlkit
    from pydantic import ValidationError

    from toolscout.files import locked, replace_file

    values: dict[str, Any] = {}
    text: Any
    for name, text in given.items():
        check_setting(name, f"{CONFIG_FILE}: ")
        try:
            settings = GivenSettings(**{name: text})
        except ValidationError as error:
            said = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            raise BadInput(f"{name} cannot be {text!r}: {said.removeprefix('Value error, ')}.") from None
        values[name] = _plain(getattr(settings, name))
    path = home / CONFIG_FILE
    with locked(path):
        parse_config(path)  # what cannot be read is not written over
        document = tomlkit.parse(path.read_text("utf-8")) if path.exists() else tomlkit.document()
        for name, value in values.items():
            if value is not None:
                document[name] = value
            elif name in document:  # TOML has no None, and it is the default
                del document[name]
        replace_file(path, tomlkit.dumps(document), mode=0o600, force_mode=True)  # a URL may hold a password
    return path


def shell_settings(home: Path) -> dict[str, str]:
    """Settings of this environment that a start elsewhere would not have, by name; the home is the entry's."""
    written = read_config(home / CONFIG_FILE)
    given = {name: os.environ[variable_of(name)] for name in _names() if variable_of(name) in os.environ}
    return {name: text for name, text in given.items() if name != "home" and str(written.get(name)) != text}


def keep_shell_settings(settings: Settings, given: Mapping[str, str]) -> None:
    """Write settings of this environment where every start finds them: the file, and secrets, unless another is kept,
    among the secrets."""
    open_store(settings).keep({variable_of(n): text for n, text in given.items() if n in SECRET_SETTINGS})
    if plain := {name: text for name, text in given.items() if name not in SECRET_SETTINGS}:
        write_settings(settings.home, plain)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _names() -> list[str]:
    return list(Settings.model_fields)


def _origin(name: str, path: Path) -> str:
    if variable_of(name) in os.environ:
        return variable_of(name)
    if name in SECRET_SETTINGS and variable_of(name) in open_store(Settings(home=path.parent)):
        return "secret"
    return path.name if name in read_config(path) else "default"


def _in_force(name: str) -> str:
    """A setting's value as `get` shows it; what else in the file cannot be used is said."""
    try:
        return _shown(_value(load_settings(), name))
    except BadInput as error:
        note(f"Toolscout cannot start yet: {error.sentence()}")
        written = parse_config(home_folder() / CONFIG_FILE)
        return _shown(_value(GivenSettings(**{n: value for n, value in written.items() if n == name}), name))


def _value(settings: Settings, name: str) -> Any:
    from toolscout.server.clients.redact import mask_url

    value = getattr(settings, name)
    if name in SECRET_SETTINGS:
        return "(set)" if value else ""
    return mask_url(value) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
