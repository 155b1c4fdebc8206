"""What each part of the fused search is worth: the same requests over the same index, with parts taken away.

The parts are those that ``index.fusion.SIGNALS`` names, whatever they are, as far as this index has them. Each
variant is the search itself with other weights; nothing is computed beside it. Every variant says on how many rows it
finds an equivalent tool among the first five where the whole search does not (``won``) and the other way round
(``lost``): with a few hundred rows, means that differ by less than that allows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from toolscout.errors import BadInput
from toolscout.eval.metrics import Judged, mean_scores, ranking_scores, recall_at
from toolscout.eval.rows import Say, draw, grouped, silent, split_of
from toolscout.records import Call, JsonObject

if TYPE_CHECKING:
    from toolscout.index.fusion import SearchParams
    from toolscout.index.search import Ask, SearchIndex

DEPTH = 100
"""Depth of a ranking, as in a search for 50 tools."""

EXEMPLAR = "exemplar"
FOLDS = 5
READY_SERVERS = 20
READY_DRAWS = 3


@dataclass(frozen=True)
class Variant:
    """One line of the table: ``weights`` replace those of the search; ``folds`` gives each fold weights of its own."""

    group: str
    name: str
    weights: Mapping[str, float]
    folds: tuple[Mapping[str, float], ...] = ()


@dataclass
class Row:
    """One answerable request, encoded once; ``gold`` and ``relevant`` are rows of the index as text."""

    call: Call
    ask: Ask | None
    gold: frozenset[str]
    relevant: frozenset[str]
    fold: int


def measure_ablation(
    index: SearchIndex, calls: Sequence[Call], *, refit: bool = False, seed: int = 0, say: Say = silent
) -> JsonObject:
    """Measure every variant over the rows with gold. The index's parameters are as before afterwards.

    Args:
        refit: fit the weights of the rest again for each signal left out, on four fifths of the rows, and rank the
            other fifth with them (five folds): else a rest that was fitted together with a signal looks worse than it
            is.

    Returns:
        ``{n, depth, weights, absent, variants: [{group, name, strict, equivalent, by_split, won, lost}], ready,
        names}``, the first variant being the whole search.
    """
    rows = read_rows(index, calls)
    if not rows:
        raise BadInput("There is no request with gold to measure.", "Give calls whose gold is not empty.")
    params = index.params
    try:
        index.params = replace(params, signals={name: value or 1e-9 for name, value in params.signals.items()})
        present = signals_present(index, rows)
        index.params = params
        variants = list(weight_variants(params, present))
        if refit:
            say("ablation: fitting the weights again, five folds for each signal")
            variants += refitted_variants(index, calls, rows, params, present)
        results: list[JsonObject] = []
        whole: list[Judged] = []
        for variant in variants:
            say(f"ablation: {variant.group} {variant.name}".rstrip())
            judged = rank_all(index, rows, params, variant)
            whole = whole or judged
            results.append(variant_result(variant.group, variant.name, rows, judged, whole))
        index.params = params
        return {
            "n": len(rows),
            "depth": DEPTH,
            "weights": dict(params.signals),
            "absent": [name for name in params.signals if name not in present],
            "variants": results,
            "ready": readiness(index, rows, seed, say),
            "names": name_hits(index, rows, params),
        }
    finally:
        index.params = params


def measure_exemplars(index: SearchIndex, calls: Sequence[Call], say: Say = silent) -> list[JsonObject]:
    """The variants with exemplar views, over an index of the same tools that has exemplars; ``won`` and ``lost`` are
    against the same index with their weight at 0."""
    rows = read_rows(index, calls)
    params = index.params
    lines = []
    try:
        weights = dict(params.signals)
        whole = rank_all(index, rows, params, Variant("", "", {**weights, EXEMPLAR: 0.0}))
        say("ablation: exemplars added")
        added = rank_all(index, rows, params, Variant("exemplars", "added", weights))
        lines.append(variant_result("exemplars", "added", rows, added, whole))
        say("ablation: exemplars alone")
        lines.append(variant_result("exemplars", "alone", rows, by_exemplars(index, rows), whole))
    finally:
        index.params = params
    return lines


def by_exemplars(index: SearchIndex, rows: Sequence[Row]) -> list[Judged]:
    """Each row's tools by their nearest exemplar. The search's own signal is no ranking: it is what an exemplar adds to
    its tool's text, and most where that text is least like the request."""
    found = []
    for row in rows:
        best = index.exemplar_cosines(row.ask) if row.ask is not None else np.empty(0, dtype=np.float32)
        order = [at for at in np.argsort(-best, kind="stable")[: DEPTH // 2].tolist() if best[at] > -1]
        found.append(Judged([str(at) for at in order], row.gold, row.relevant))
    return found


def read_rows(index: SearchIndex, calls: Sequence[Call]) -> list[Row]:
    """The rows with gold, each encoded once. A gold tool that the pool lacks is one that no ranking holds."""
    from toolscout.index.words import has_words

    answerable = [call for call in calls if call.gold]
    folds = np.random.default_rng(0).permutation(len(answerable)) % FOLDS
    rows = []
    for call, fold in zip(answerable, folds, strict=True):
        gold = row_names(index, {g.tool_id for g in call.gold})
        relevant = row_names(index, call.relevant_ids())
        ask = index.ask(call.query) if has_words(call.query) else None
        rows.append(Row(call, ask, gold, relevant | gold, int(fold)))
    return rows


def row_names(index: SearchIndex, tool_ids: set[str]) -> frozenset[str]:
    """Rows of tools as text; the id itself for a tool that is not there."""
    ids = sorted(tool_ids)
    found = index.storage.rows_of(ids)
    return frozenset(tool_id if row < 0 else str(row) for tool_id, row in zip(ids, found.tolist(), strict=True))


def signals_present(index: SearchIndex, rows: Sequence[Row]) -> set[str]:
    """Signals that are not zero everywhere."""
    present: set[str] = set()
    for row in rows:
        if row.ask is not None:
            ranking = index.rank(row.ask, None, DEPTH)
            present |= {name for name, values in ranking.signals.items() if np.any(values)}
    return present & set(index.params.signals)


def alone(params: SearchParams, name: str) -> dict[str, float]:
    """Weights of one signal and no other."""
    return {other: float(other == name) for other in params.signals}


def weight_variants(params: SearchParams, present: set[str]) -> Iterator[Variant]:
    """The whole search, each signal left out, each signal alone; signals that weigh nothing cannot be left out."""
    kept = params.signals
    yield Variant("whole", "", kept)
    for name, weight in kept.items():
        if name in present and weight:
            yield Variant("without", name, {**kept, name: 0.0})
    for name in kept:
        if name in present and name != EXEMPLAR:
            yield Variant("alone", name, alone(params, name))


def refitted_variants(
    index: SearchIndex, calls: Sequence[Call], rows: Sequence[Row], params: SearchParams, present: set[str]
) -> list[Variant]:
    """All signals and each left out, with weights fitted on the other folds by ``finetune.fit_search``."""
    from toolscout.finetune import fit_search

    cases = fit_search.read_cases(index, [row.call for row in rows])
    fold_of = {row.call.id: row.fold for row in rows}
    cases = [case for case in cases if len(case.relevant)]
    names = list(fit_search.FITTED)
    variants = []
    for left_out in [None, *(name for name in names if name in present and params.signals.get(name))]:
        blind = [
            case if left_out is None else replace(case, signals=case.signals * [name != left_out for name in names])
            for case in cases
        ]
        folds = []
        for fold in range(FOLDS):
            fitted = fit_search.fit_signals([c for c in blind if fold_of[c.call.id] != fold])
            weights = {
                n: 0.0 if n == left_out else float(w) / fit_search.SCALE for n, w in zip(names, fitted, strict=True)
            }
            folds.append({**params.signals, **weights})
        variants.append(Variant("refitted", f"without {left_out}" if left_out else "all", {}, tuple(folds)))
    return variants


def rank_all(index: SearchIndex, rows: Sequence[Row], params: SearchParams, variant: Variant) -> list[Judged]:
    """The ranking of every row under a variant's weights. Changes ``index.params``."""
    sets = [replace(params, signals=dict(weights)) for weights in variant.folds or (variant.weights,)]
    judged = []
    for row in rows:
        index.params = sets[row.fold if variant.folds else 0]
        ranked = [] if row.ask is None else index.rank(row.ask, None, DEPTH).rows.tolist()
        judged.append(Judged([str(r) for r in ranked[: DEPTH // 2]], row.gold, row.relevant))
    return judged


def variant_result(
    group: str, name: str, rows: Sequence[Row], judged: Sequence[Judged], whole: Sequence[Judged]
) -> JsonObject:
    """One line of the table."""
    found = [_found(j) for j in judged]
    before = [_found(j) for j in whole]
    pairs = list(zip(rows, judged, strict=True))
    return {
        "group": group,
        "name": name,
        "strict": _means([ranking_scores(j.strict_gains(), len(j.gold)) for j in judged]),
        "equivalent": _means([ranking_scores(j.equivalent_gains(), len(j.gold)) for j in judged]),
        "by_split": {
            split: {"n": len(part), "equivalent recall@5": round(sum(_found(j) for _, j in part) / len(part), 4)}
            for split, part in grouped(pairs, lambda pair: split_of(pair[0].call)).items()
        },
        "won": sum(now > then for now, then in zip(found, before, strict=False)) if whole else None,
        "lost": sum(now < then for now, then in zip(found, before, strict=False)) if whole else None,
    }


def readiness(index: SearchIndex, rows: Sequence[Row], seed: int, say: Say = silent) -> JsonObject:
    """What favouring servers that can be called at once does, both ways.

    For each row ``READY_SERVERS`` servers without a relevant tool are drawn as ready, ``READY_DRAWS`` times.
    ``harm``: only these are ready. ``help``: so is the server of one gold tool. Beside both, the same rows with none
    favoured.
    """
    say("ablation: readiness")
    servers = index.largest_servers(index.meta.servers)
    totals: dict[str, list[float]] = {"plain": [], "harm": [], "help": []}
    firsts: dict[str, list[float]] = {"plain": [], "harm": [], "help": []}
    most = 0
    for row in rows:
        tools = [tool for tool in (index.get_tool(i) for i in sorted(row.call.relevant_ids())) if tool is not None]
        gold = index.get_tool(row.call.gold[0].tool_id)
        if gold is None or row.ask is None:
            continue
        own = {tool.server_id for tool in tools}
        relevant = row.call.relevant_ids()

        def ask(favour: set[str], kind: str, query: str = row.call.query, relevant: set[str] = relevant) -> None:
            hits = index.find(query, limit=5, dynamic=False, abstain=False, favour=frozenset(favour)).hits
            ids = [hit.tool_id for hit in hits]
            totals[kind].append(float(any(i in relevant for i in ids)))
            firsts[kind].append(float(bool(ids) and ids[0] in relevant))

        ask(set(), "plain")
        for number in range(READY_DRAWS):
            others = sorted(servers, key=lambda s, n=number, i=row.call.id: draw(seed, f"{n}:{i}:{s}"))  # type: ignore[misc]
            ready = [server for server in others if server not in own][:READY_SERVERS]
            most = max(most, len(ready))
            ask(set(ready), "harm")
            ask({*ready, gold.server_id}, "help")
    return {
        "n": len(totals["plain"]),
        "ready_servers": most,
        "draws": READY_DRAWS,
        **{
            kind: {"any@1": _average(firsts[kind]), "any@5": _average(totals[kind])}
            for kind in ("plain", "harm", "help")
        },
    }


def name_hits(index: SearchIndex, rows: Sequence[Row], params: SearchParams) -> JsonObject | None:
    """A probe of exact-name hits: each gold tool asked for by its bare name; found is any tool of that name.

    Requests in files seldom spell a name, agents often do. None where the index has no ``name`` signal.
    """
    if "name" not in params.signals:
        return None
    golds = {g.tool_id: None for row in rows for g in row.call.gold}
    tools = [tool for tool in map(index.get_tool, golds) if tool is not None]
    result: JsonObject = {"n": len(tools)}
    try:
        for key, weight in (("with", params.signals["name"]), ("without", 0.0)):
            index.params = replace(params, signals={**params.signals, "name": weight})
            named = []
            for tool in tools:
                hits = index.find(tool.name, limit=5, dynamic=False, abstain=False).hits
                named.append([hit.tool.name.casefold() == tool.name.casefold() for hit in hits])
            result[key] = {
                "any@1": _average([float(any(row[:1])) for row in named]),
                "any@5": _average([float(any(row)) for row in named]),
            }
    finally:
        index.params = params
    return result


def check_exemplars(exemplars: Sequence[Call], calls: Sequence[Call]) -> None:
    """Raises BadInput if an exemplar asks what a measured row asks: that would be measuring on the answers."""
    from toolscout.finetune.pairs import same_text

    asked = {same_text(call.query) for call in calls} - {""}
    ids = {call.id for call in calls}
    shared = [call.id for call in exemplars if call.id in ids or same_text(call.query) in asked]
    if shared:
        raise BadInput(
            f"{len(shared)} exemplars are rows that are measured, the first is {shared[0]!r}.",
            "Give exemplars of another file than --calls.",
        )


def _found(judged: Judged) -> float:
    return recall_at(judged.equivalent_gains(), len(judged.gold), 5)


def _means(rows: Sequence[Mapping[str, float]]) -> JsonObject:
    return {key: None if value is None else round(value, 4) for key, value in mean_scores(rows).items()}


def _average(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
