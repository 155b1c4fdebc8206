"""An offer to install: what a person is shown of a server of the catalogue, and what their answer means.

Nothing here starts or writes anything. An offer shows facts that a person can check (command line, package, licence,
homepage), and no description: that is the text of strangers, and would argue for itself.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolscout.errors import BadInput, NotAllowed, ToolscoutError
from toolscout.records import JsonObject, Server, age_shown, canonical_json, publisher_shown, sha256_hex, warning_shown
from toolscout.server.asking import content_of, unanswered
from toolscout.server.clients.redact import Redactor
from toolscout.server.config import UpstreamConfig
from toolscout.server.launch import Launch, catalogue_launch, needs, shown
from toolscout.server.sandbox.policy import Default
from toolscout.server.secrecy.secrets import bare_names

KEY = "toolscout_install"
"""Name of the question among a result's input requests."""

_YES = "install"
_FIELD = "argument_{}"
_LONGEST_COMMAND = 2000
_LONGEST_FACT = 200
_LONGEST_VALUE = 1000


@dataclass(frozen=True)
class Offer:
    """What is asked of a person: ``message`` and ``schema`` of a form elicitation, for one server and one tool."""

    server: Server
    launch: Launch
    message: str
    schema: JsonObject

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of all that is shown and all that would be written: an answer holds for nothing else."""
        shown_and_meant = [self.server.server_id, dict(self.launch.entry), self.message, self.schema]
        return sha256_hex(canonical_json(shown_and_meant))

    def params(self) -> JsonObject:
        """The parameters of ``elicitation/create``. Form mode, and nothing secret is asked for."""
        return {"mode": "form", "message": self.message, "requestedSchema": self.schema}


def make_offer(
    server: Server,
    tool_name: str,
    tools: int,
    values: Mapping[str, str] | None = None,
    sandbox: Default = "off",
) -> Offer | None:
    """The offer for a server that is not installed, or None where there is nothing that could honestly be offered.

    ``values`` is what references stand for, by default the environment; ``sandbox`` is the one of servers whose entry
    does not say: this one's entry will not.

    That is so when the catalogue does not say how the server is run, when what runs it is missing here, when a variable
    that it requires is not set, or when its command line cannot be shown as it is.
    """
    values = os.environ if values is None else values
    try:
        launch = catalogue_launch(server, values)
        entry, secrets = Redactor(values=values).clean(server.server_id, dict(launch.entry))
        config = UpstreamConfig.parse(server.server_id, entry)
    except ToolscoutError:
        return None
    line = shown(launch.entry)
    needed = {*launch.required, *config.references()}
    hidden = not all(map(str.isprintable, [line, *launch.entry.get("args", ())]))
    if secrets or len(line) > _LONGEST_COMMAND or hidden or any(not values.get(n) for n in needed):
        return None
    return Offer(server, launch, _message(server, config, line, tool_name, tools, sandbox), _schema(server, launch))


def accepted(response: object) -> bool:
    """Whether an answer to the question is a yes: the form sent, and the box in it ticked."""
    content = content_of(response)
    return content is not None and content.get(_YES) is True


def declined(server_id: str, tool_name: str, answer: object) -> str:
    """What the caller is told when the answer was no, or none was given."""
    asked = f"The user was asked whether '{server_id}' may be installed and did not agree"
    if unanswered(answer):
        asked = f"The user was to be asked whether '{server_id}' may be installed, and no answer came"
    return f"{asked}, so nothing was installed and '{tool_name}' was not called: go on without it."


def approved_config(offer: Offer, response: object, taken: Mapping[str, UpstreamConfig]) -> UpstreamConfig:
    """The entry that a yes approves, with the person's values in it; ``taken`` are the servers configured already.

    Raises NotAllowed or BadInput for values that cannot be used: none is stored, and nothing is changed.
    """
    content = content_of(response) or {}
    values = [_value(offer, number, content) for number in range(len(offer.launch.placeholders))]
    names = bare_names(n for config in taken.values() for n in config.references())
    entry, secrets = Redactor(taken=names).clean(offer.server.server_id, offer.launch.filled(values))
    if secrets:
        raise NotAllowed(
            f"A value that was given seems to hold a secret, so '{offer.server.server_id}' was not installed.",
            f"In a terminal: toolscout secret set ITS_NAME, and {offer.launch.add_command()} with ${{ITS_NAME}}.",
        )
    return UpstreamConfig.parse(offer.server.server_id, entry)


def _value(offer: Offer, number: int, content: Mapping[str, Any]) -> str:
    """One value that the person gave. Raises BadInput for one that cannot stand for a placeholder."""
    label = offer.launch.placeholders[number]
    value = content.get(_FIELD.format(number + 1))
    text = value.strip() if isinstance(value, str) else ""
    # An option would make another command of it, and a reference would hand over a variable that nobody was shown.
    unusable = text.startswith(("-", "keyring:")) or "${" in text or not text.isprintable()
    if not text or len(text) > _LONGEST_VALUE or unusable:
        raise BadInput(
            f"No usable value for <{label}> was given, so '{offer.server.server_id}' was not installed.",
            f"Ask again, or a person can type: {offer.launch.add_command()}",
        )
    return text


def _schema(server: Server, launch: Launch) -> JsonObject:
    yes = {
        "type": "boolean",
        "title": "Install and start it",
        "description": f"Yes: add {_plain(server.server_id)} to Toolscout's servers and start it on this machine.",
        "default": False,
    }
    fields: JsonObject = {_YES: yes}
    for number, label in enumerate(launch.placeholders, 1):
        fields[_FIELD.format(number)] = {
            "type": "string",
            "title": label,
            "description": f"Stands for <{label}> above. No password and no key: where it needs one, say no, "
            f"and type in a terminal: {launch.add_command()}",
            "maxLength": _LONGEST_VALUE,
        }
    return {"type": "object", "properties": fields, "required": list(fields)}


def _message(server: Server, config: UpstreamConfig, line: str, tool_name: str, tools: int, sandbox: Default) -> str:
    homepage = server.homepage or ""
    facts = {
        "Package": _package(server, config),
        "License": server.license,
        "Publisher": publisher_shown(server) or "not stated",
        "Age": age_shown(server),
        "Downloads": f"{int(server.popularity):,} a month" if server.popularity else "",
        "Homepage": homepage if homepage.startswith(("https://", "http://")) else "",
        "Tools": f"{tools}, of which '{tool_name}' is wanted now" if tools else "known once it is added",
        "Login": "it asks you to log in, in your browser" if config.auth == "oauth" else "",
    }
    if not config.url:  # of what runs here, what is not known counts as well
        facts |= {name: facts[name] or "not stated" for name in ("License", "Age", "Downloads", "Homepage")}
    policy = config.policy(sandbox)
    where = (
        f"It will run in a sandbox: it {policy.shown()}." if policy else "It will run with your rights, in no sandbox."
    )
    where = "It will see what is sent to it." if config.url else where
    usual = "none" if config.url else "none but the usual (PATH, HOME, ...)"
    lines = [
        f"An agent wants to use a tool of the MCP server '{_plain(server.server_id)}', which is not installed. {where}",
        *filter(None, [warning_shown(server)]),
        f"It {'calls' if config.url else 'runs'}: {line}",
        *(f"{name}: {_plain(fact)}" for name, fact in facts.items() if fact),
        f"Your variables it gets: {', '.join(config.references()) or usual}",
    ]
    if unset := [name for name in needs(server) if name not in config.references()]:
        lines.append(f"Keys it may want, not set here: {', '.join(unset)}")
    # Of the rest an entry holds references only: what has a value is what the catalogue sets.
    if given := [f"{name}={value}" for name, value in config.env.items() if not value.startswith("${")]:
        lines.append(f"Set for it: {shlex.join(given)}")
    return "\n".join(lines)


def _package(server: Server, config: UpstreamConfig) -> str:
    install, version = server.install, server.install.version
    if install.package:
        pinned = version and any(word.endswith((f"@{version}", f"=={version}", f":{version}")) for word in config.args)
        return (
            f"{install.package}, version {version if pinned else 'not pinned: the newest one'}, from {install.registry}"
        )
    return "" if install.url else "none: it is the command above"


def _plain(text: str) -> str:
    """Text of others on one line, bounded, without what a person would not see."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"
