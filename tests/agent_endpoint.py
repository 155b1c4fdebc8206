"""A model for the tests of the web agent: it chooses among a question's options as a test says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from chat_endpoint import Body, ChatEndpoint, Reply, refused, said, schema_of

Chooses = Callable[[str, dict[str, Any]], Any]
"""From question and schema to the answer: an object, or its text."""


class Endpoint(ChatEndpoint):
    """Keeps the ``questions`` that it answered; one that is not ``constrained`` refuses schemas."""

    def __init__(self, chooses: Chooses, *, constrained: bool = True, status: int = 200) -> None:
        self.chooses, self.constrained, self.status = chooses, constrained, status
        self.questions: list[str] = []
        super().__init__(self.choose)

    def choose(self, body: Body) -> Reply:
        if "response_format" in body and not self.constrained:
            return refused("response_format is not known here")
        question = body["messages"][1]["content"]
        self.questions.append(question)
        answer = self.chooses(question, schema_of(body) or {})
        text = answer if isinstance(answer, str) else json.dumps(answer)
        _, completion = said(text, prompt_tokens=len(question) // 4, completion_tokens=7)
        return self.status, completion


def picks(*patterns: str) -> Chooses:
    """A model that chooses the first option in which one of the patterns is found, else none."""

    def choose(question: str, schema: dict[str, Any]) -> Any:
        options = re.findall(r"(?m)^(Z?[A-Z]\d*): (.*)$", question.rpartition("Options:\n")[2])
        chosen = next((k for pattern in patterns for k, text in options if re.search(pattern, text)), "none")
        return {"choice": chosen}

    return choose
