"""What the agent spends: tokens, seconds and price for each server, as in Table 11 of MCP-Flow (arXiv 2510.24284)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from toolscout.records import JsonObject


@dataclass
class Spent:
    """Tokens and decisions of some piece of work. ``model`` and ``rules`` count who decided, ``overruled`` how often
    the model's answer led nowhere and a site's rules took over."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    model: int = 0
    rules: int = 0
    remembered: int = 0
    overruled: int = 0

    def add(self, other: Spent) -> None:
        """Add another's."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def take(self) -> Spent:
        """What was spent since the last time, and start from zero."""
        taken = Spent(**asdict(self))
        for name in asdict(self):
            setattr(self, name, 0)
        return taken


@dataclass(frozen=True)
class ServerCost:
    """One server's cost: its own page, and its share of the list page that named it."""

    marketplace: str
    url: str
    server_id: str
    """Empty where the page gave no server."""
    seconds: float
    prompt_tokens: float
    completion_tokens: float
    price: float
    pages: float


@dataclass
class Costs:
    """All costs of a run. ``price_in`` and ``price_out`` are for a million tokens."""

    price_in: float = 0.0
    price_out: float = 0.0
    servers: list[ServerCost] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)

    def price(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of so many tokens."""
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1_000_000

    def record(
        self,
        marketplace: str,
        url: str,
        server_id: str,
        *,
        own: tuple[float, Spent],
        shared: tuple[float, Spent],
        share: float,
    ) -> None:
        """Book one server: seconds and tokens of its own page, and its share (0 to 1) of the list page's."""
        prompt = own[1].prompt_tokens + shared[1].prompt_tokens * share
        completion = own[1].completion_tokens + shared[1].completion_tokens * share
        cost = ServerCost(
            marketplace=marketplace,
            url=url,
            server_id=server_id,
            seconds=own[0] + shared[0] * share,
            prompt_tokens=prompt,
            completion_tokens=completion,
            price=self.price(prompt, completion),
            pages=1 + share,
        )
        self.servers.append(cost)

    def take(self) -> list[ServerCost]:
        """The servers booked since the last time; they are not kept here."""
        taken, self.servers = self.servers, []
        return taken

    def summary(self) -> list[JsonObject]:
        """One row per marketplace and one for all: servers, means per server, and the totals. Failed pages count in."""
        names = sorted({s.marketplace for s in self.servers})
        rows = [_row(name, [s for s in self.servers if s.marketplace == name]) for name in names]
        if len(names) > 1:
            rows.append(_row("all", self.servers))
        return rows


def _row(name: str, costs: list[ServerCost]) -> JsonObject:
    found = sum(1 for c in costs if c.server_id)
    return {
        "marketplace": name,
        "pages_read": len(costs),
        "servers": found,
        "prompt_tokens_per_server": _share(sum(c.prompt_tokens for c in costs), found),
        "completion_tokens_per_server": _share(sum(c.completion_tokens for c in costs), found),
        "seconds_per_server": _share(sum(c.seconds for c in costs), found),
        "seconds_median": round(statistics.median(c.seconds for c in costs), 3) if costs else 0.0,
        "price_per_server": _share(sum(c.price for c in costs), found, digits=8),
        "price": round(sum(c.price for c in costs), 8),
    }


def _share(total: float, count: int, digits: int = 3) -> float:
    return round(total / count, digits) if count else 0.0


def table(rows: Iterable[JsonObject]) -> str:
    """The summary as a Markdown table."""
    heads = ("marketplace", "servers", "tokens in", "tokens out", "seconds", "price")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = (
            row["marketplace"],
            row["servers"],
            row["prompt_tokens_per_server"],
            row["completion_tokens_per_server"],
            row["seconds_per_server"],
            row["price_per_server"],
        )
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    return "\n".join(lines)
