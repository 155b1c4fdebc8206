"""Texts and calls that small models write and nobody means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolscout.commands.synth_bench import ungrounded
from toolscout.records import JsonObject, Tool
from toolscout.synth.drafts import Draft
from toolscout.synth.filters.grounded import Grounded
from toolscout.synth.talk import copied, talk

CIPHER = Tool(
    tool_id="s/decrypt",
    server_id="s",
    name="decrypt",
    description="Decrypts a text with a symmetric key and gives back what had been written before it was encrypted.",
    input_schema={
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "cipherText": {"type": "string", "description": "What to decrypt."},
            "outFile": {"type": "string", "description": "File to write."},
            "message": {"type": "string", "description": "The raw text, inline (not a file path)."},
            "options": {"type": "object"},
        },
        "required": ["key", "cipherText"],
    },
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Decrypt gAAAB with the key abc.", ""),
        ("Please provide the key and the cipher text.", "asks for what it should give"),
        ("Please provide the key: it is 'abc'.", ""),
        ("Please provide the weather in Oslo.", ""),
        ("Decrypt gAAAB using the provided tool.", "speaks of the tool"),
        ("Decrypt it, with all required parameters set.", "speaks of the tool"),
        ("Call decrypt_text(key=abc) on it.", "speaks of the tool"),
        ("Give me the docs of the tool chain that we decrypt with.", ""),
        ("Sure, decrypt gAAAB.", "speaks as the assistant"),
        ("I want what had been written before it was encrypted there.", "copies the description"),
    ],
)
def test_what_no_person_says_is_told_by_its_words(text: str, reason: str) -> None:
    assert talk(text, CIPHER, 8)[0] == reason


def test_a_tool_about_tools_is_asked_for_in_their_words() -> None:
    about = CIPHER.model_copy(update={"description": "Lists the required parameters of a command."})
    assert talk("Which are the required parameters of git log?", about, 8) == ("", "")


def test_a_run_of_words_is_a_copy_and_fewer_are_not() -> None:
    assert copied(
        "so one two three four five six seven eight it is", "One, two; three four five six seven EIGHT!", length=8
    )
    assert not copied("one two three four five six seven", "one two three four five six seven eight", length=8)


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("Decrypt gAAAB with the key abc12", {"key": "abc12", "cipherText": "gAAAB"}, ""),
        ("Decrypt 'ciphertext…' with key…", {"key": "key…", "cipherText": "ciphertext…"}, "placeholder for a value"),
        ("Decrypt notes.md by abc12", {"key": "abc12", "cipherText": "notes.md"}, "a file's name for its content"),
        ("Decrypt a.md by x1", {"key": "x1", "cipherText": "x1", "message": "a.md"}, "a file's name for its content"),
        ("Decrypt gAAAB to a.md", {"key": "gAAAB", "cipherText": "gAAAB", "outFile": "a.md"}, ""),
        ("Decrypt 'gAAAB' please", {}, "no argument takes what is stated"),
        ("Decrypt it please", {}, ""),
        (
            "Decrypt gAAAB",
            {"key": "gAAAB", "cipherText": "gAAAB", "options": {"mode": "CBC", "rounds": 4711, "pad": "gAAAB"}},
            "value not in the instruction",
        ),
    ],
)  # fmt: skip
async def test_calls_with_what_the_request_lacks_and_without_what_it_states_are_dropped(
    text: str, arguments: JsonObject, reason: str
) -> None:
    bench = SimpleNamespace(settings=SimpleNamespace(ungrounded_above=0), tools={CIPHER.tool_id: CIPHER})
    draft = Draft(id="1", tool_id=CIPHER.tool_id, definition="", text=text, arguments=arguments)
    outcome = await Grounded(cast(Any, bench), ungrounded).work(draft)
    assert [d.reason for d in outcome.dropped] == ([reason] if reason else [])
