"""Settings of synthesis: who is asked, at what price, and every threshold; each from ``TOOLSCOUT_SYNTH_<NAME>``."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from toolscout.errors import BadInput

_PREFIX = "TOOLSCOUT_SYNTH_"


class SynthSettings(BaseSettings):
    """All that decides what is made and what is kept. Prices are for a million tokens, in any one currency."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore")

    # -- who is asked

    model_url: str = ""
    """Base URL of the OpenAI-compatible endpoint that writes. Empty: ``TOOLSCOUT_MODEL_URL``."""

    model: str = ""
    """Its model; empty means the first one it lists."""

    model_key: str = Field(default="", repr=False)

    second_url: str = ""
    """Endpoint of the second model, which judges and takes part in the invocation check. Empty: the first one's."""

    second_model: str = ""
    """The second model; empty means that the first one judges itself."""

    second_key: str = Field(default="", repr=False)
    timeout: float = Field(default=600.0, gt=0)
    """Seconds that one answer may take, the wait for the endpoint's other requests included. What is given up is asked
    for again from the start: with too short a time a slow endpoint never comes to an end."""

    # -- how much at once, how often again, for how much

    concurrency: int = Field(default=8, ge=1)
    """Most requests under way at once."""

    retries: int = Field(default=6, ge=0)
    """How often a request that failed in passing (429, 5xx, a lost connection) is sent again."""

    longest_pause: float = Field(default=60.0, gt=0)
    """Most seconds between two tries, whatever the endpoint asks for."""

    price_in: float = Field(default=0.0, ge=0)
    price_out: float = Field(default=0.0, ge=0)
    second_price_in: float = Field(default=0.0, ge=0)
    second_price_out: float = Field(default=0.0, ge=0)
    max_cost: float = Field(default=0.0, ge=0)
    """Cost ceiling of a folder, resumed runs included; 0: none."""

    max_tokens: int = Field(default=1024, ge=16)
    """Longest answer."""

    repairs: int = Field(default=1, ge=0)
    """How often an answer that cannot be read is asked for again, with what is wrong with it."""

    temperature: float = Field(default=0.7, ge=0, le=2)
    """Of what is to be various (instructions and their evolution); calls and judgements are greedy."""

    # -- what is made

    instructions: int = Field(default=5, ge=1, le=20)
    """Instructions a tool."""

    depth: int = Field(default=2, ge=0, le=5)
    """Evolutions of each instruction, one upon the other."""

    keep_levels: str = Field(default="ends", pattern="^(ends|all|last)$")
    """Which levels go on: the plain one and the deepest (``ends``), ``all``, or the deepest only (``last``)."""

    languages: dict[str, float] = Field(default_factory=dict)
    """Share of instructions that are translated, by language: ``{"de": 0.03, "zh": 0.03}``."""

    longest_instruction: int = Field(default=1200, ge=50)
    """Dropped: instructions of more characters. Nobody types more, and a model that does has lost the thread."""

    copied_words: int = Field(default=8, ge=3)
    """Dropped: instructions that share so many words in a row with what the model was shown."""

    fill_shared_from: float = Field(default=0.4, ge=0, le=1)
    """Dropped: revisions with a smaller share of their instruction's character 5-grams; they are other instructions."""

    growth_words: int = Field(default=90, ge=1)
    """Eliminated: generations that add more words than this; they are other requests."""

    allow_names: bool = False
    """Let instructions name their server or tool."""

    seed: int = 0
    """Draws evolution directions, distractors and languages, always the same for the same instruction."""

    # -- plans: calls in several steps

    plans: int = Field(default=20, ge=0)
    """Hands of tools that are dealt in each category."""

    plans_across: int = Field(default=20, ge=0)
    """Combinations of categories that the model is asked for."""

    plan_smallest: int = Field(default=2, ge=2, le=10)
    plan_largest: int = Field(default=10, ge=2, le=10)
    """Tools of a hand, least and most."""

    plan_near: float = Field(default=0.5, ge=0, le=1)
    """Share of a category's hands that are dealt server by server."""

    plan_fillings: int = Field(default=3, ge=1, le=50)
    """Combinations of slot values for each template."""

    # -- what is kept

    resembles_above: float = Field(default=0.8, ge=-1, le=1)
    """Dropped: cosine of instruction and tool description above this (MCP-Flow 3.3)."""

    ungrounded_above: int = Field(default=0, ge=0)
    """Dropped: more argument values than this that the instruction does not give."""

    duplicate_from: float = Field(default=0.8, gt=0, le=1)
    """Dropped: estimated Jaccard similarity (MinHash) with an instruction kept before, from this on."""

    distractors: int = Field(default=2, ge=1, le=20)
    """Random tools beside the gold in the invocation check."""

    judge_below: float = Field(default=6.0, ge=0, le=10)
    """Dropped: the judge's score of instruction or call below this, out of 10."""

    response_below: float = Field(default=6.0, ge=0, le=10)
    """Dropped of trajectories: the judge's score of the tools' responses below this, out of 10."""

    answer_below: float = Field(default=6.0, ge=0, le=10)
    """Dropped of trajectories: the judge's score of the final answer below this, out of 10."""

    # -- how calls are executed

    call_timeout: float = Field(default=60.0, gt=0, le=3600)
    """Seconds that one executed call may take, beside the start of its server."""

    calls_at_once: int = Field(default=4, ge=1)
    """Most rows whose calls are executed at once."""

    calls_a_server: int = Field(default=2, ge=1)
    """Most calls under way on one server."""

    response_characters: int = Field(default=8000, ge=200)
    """Longest response that a trajectory and its prompts show; a longer one is cut, with a mark."""

    response_stored: int = Field(default=262_144, ge=1000)
    """Longest response that is kept for references to it, in characters."""

    serve_token: str = Field(default="", repr=False)
    """Bearer token of the Toolscout that trajectories are executed through, where it is reached by URL."""

    plan_reasonable_below: float = Field(default=6.0, ge=0, le=10)
    """Dropped: the judge's score of a plan's request alone below this, out of 10."""

    plan_matches_below: float = Field(default=6.0, ge=0, le=10)
    """Dropped: the judge's score of a plan's calls for the request below this, out of 10."""

    @field_validator("languages")
    @classmethod
    def _are_shares(cls, value: dict[str, float]) -> dict[str, float]:
        if any(share < 0 or not math.isfinite(share) for share in value.values()) or sum(value.values()) > 1:
            raise ValueError("shares of languages are at least 0 and together at most 1")
        return value


def synth_settings(**given: Any) -> SynthSettings:
    """Settings from the environment; what is given and not None wins.

    Raises:
        BadInput: a value that is none. Values are not shown: one may be a key in the wrong place.
    """
    try:
        return SynthSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "languages"
        raise BadInput(f"The synthesis setting {name} cannot be used: {first['msg']}.") from None
