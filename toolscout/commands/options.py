"""Options that several commands which make data and models have alike."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from toolscout.errors import BadInput

Servers = Annotated[
    list[Path] | None, typer.Option(help="Files of the tools' servers. Several may follow.", show_default=False)
]
RunFolder = Annotated[Path, typer.Option(help="Folder of the run. The same command goes on with what is in it.")]

TrainingCalls = Annotated[
    list[Path], typer.Option(help="Requests with their gold calls to train on. Several may follow.")
]
Pool = Annotated[list[Path], typer.Option(help="Files of tools: the pool. Several may follow.")]
StopAt = Annotated[int, typer.Option(min=0, help="End at this step with a checkpoint.", show_default="never")]
Minutes = Annotated[
    float, typer.Option(min=0, help="End after so many minutes with a checkpoint.", show_default="never")
]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads.", show_default="PyTorch's choice")]


def named_numbers(text: str, what: str, example: str) -> dict[str, float]:
    """``de=0.03,zh=0.03`` by name. Raises BadInput, which says that the text gives no ``what``."""
    try:
        return {n.strip(): float(v) for n, _, v in (p.partition("=") for p in text.split(",") if p.strip())}
    except ValueError:
        raise BadInput(f"{text!r} gives no {what}.", f"For example: {example}") from None


def card_command(arguments: list[str]) -> str:
    """The command for a card, with files and folders by name: paths are of one machine, the card goes to all."""
    return shlex.join(["toolscout", *(Path(a).name if "/" in a else a for a in arguments)])
