"""The diagnosis of past calls: failing and slow upstreams, refusals, faults; each with what to do."""

from __future__ import annotations

import math
import shlex

from toolscout.server.doctor.examine import Check, Status
from toolscout.server.doctor.traffic import Traffic, Upstream

_SLOW_SECONDS = 10.0
_FAILING_SHARE = 0.05
_BROKEN_SHARE = 0.5
_FEW = 5
"""Upstreams with fewer calls are not called broken for one that failed."""

_CALLERS = frozenset({"tool_error", "upstream_refused", "cancelled", "invalid_arguments", "refused"})
"""What says little against an upstream: the call was wrong, or the client gave up."""

_FIXES = {
    "upstream_timeout": 'Raise TOOLSCOUT_UPSTREAM_CALL_TIMEOUT or its "timeout" in mcp.json, or see why it is slow.',
    "upstream_crashed": "It ends by itself: toolscout doctor shows its stderr; look for its own limits, and update it.",
    "upstream_start_failed": "Run: toolscout doctor (it starts each server and shows what it says).",
    "upstream_start_timeout": "Raise TOOLSCOUT_UPSTREAM_START_TIMEOUT, or install its package beforehand.",
    "upstream_backing_off": "It failed several times in a row; see its first error: toolscout doctor.",
    "upstream_busy": "Raise TOOLSCOUT_UPSTREAM_CONCURRENCY, or serve with more workers.",
    "upstream_too_large": "Agents should ask for less; or raise TOOLSCOUT_MAX_RESULT_BYTES.",
    "upstream_unauthorized": "Its key is wrong or has expired: see its entry in mcp.json.",
    "upstream_protocol": "It breaks the protocol: update it, or tell its authors.",
    "not_allowed": "A secret is missing, or it is switched off: run toolscout doctor.",
    "not_found": "It is not configured any more: run toolscout refresh.",
}
_REFUSAL_FIXES = {
    "guard": "Look at the tools that wait, and approve or block them: toolscout review",
    "rate": "Agents call more often than [rates] in the policy file allows: raise it, or leave it if it is meant.",
    "policy": "See which rule: toolscout audit; docs/POLICY.md says how rules are written.",
}


def examine_calls(traffic: Traffic) -> list[Check]:
    """What the calls show, the worst first."""
    checks = [
        check
        for name, upstream in sorted(traffic.upstreams.items())
        if (check := _upstream(name, upstream)) is not None
    ]
    by = sorted({who for who, _ in traffic.refusals})
    for who in by:
        reasons = {reason: n for (other, reason), n in traffic.refusals.items() if other == who and n}
        if reasons:
            checks.append(Check(f"refused by {who}", "warn", _counted(reasons), _REFUSAL_FIXES.get(who, "")))
    faults = {tool: n for (tool, kind), n in traffic.errors.items() if kind == "internal" and n}
    if faults:
        fix = "This is a fault in Toolscout: the log has its stack; please report it."
        checks.append(Check("faults", "fail", _counted(faults), fix))
    model = {kind: n for (_, kind), n in traffic.errors.items() if kind == "model_error" and n}
    if model:
        checks.append(Check("model", "warn", _counted(model), "Run: toolscout doctor (it asks the model)."))
    checks.sort(key=lambda check: ("fail", "warn", "ok").index(check.status))
    failed = sum(traffic.errors.values())
    return [Check("calls", "ok", f"{traffic.calls:,} in {traffic.source}, {failed:,} of them failed"), *checks]


def _upstream(name: str, upstream: Upstream) -> Check | None:
    own = {kind: n for kind, n in upstream.errors.items() if kind not in _CALLERS and n}
    failed, slow = sum(own.values()), upstream.slow()
    facts, fixes = [], []
    if failed:
        facts.append(f"{failed:,} of {upstream.calls:,} calls failed ({_counted(own)})")
        worst = max(own, key=lambda kind: own[kind])
        fixes.append(_FIXES.get(worst, f"Run: toolscout list, and toolscout refresh {shlex.quote(name)}"))
    if starts := {kind: n for kind, n in upstream.start_failures.items() if n}:
        facts.append(f"{sum(starts.values()):,} starts failed ({_counted(starts)})")
        fixes.append(_FIXES.get(max(starts, key=lambda kind: starts[kind]), _FIXES["upstream_start_failed"]))
    if upstream.crashes:
        facts.append(f"ended by itself {upstream.crashes:,} times")
        fixes.append(_FIXES["upstream_crashed"])
    if slow is not None and slow >= _SLOW_SECONDS:
        facts.append("some calls take more than a minute" if math.isinf(slow) else f"95 % of calls within {slow:.3g} s")
        fixes.append("It is slow: look at the machine it runs on, or at what agents ask of it.")
    if not facts:
        return None
    share = failed / upstream.calls if upstream.calls else 1.0
    broken = share >= _BROKEN_SHARE and upstream.calls >= _FEW
    mild = share < _FAILING_SHARE and not starts and not upstream.crashes and not (slow and slow >= _SLOW_SECONDS)
    status: Status = "fail" if broken else "ok" if mild else "warn"
    return Check(f"server {name}", status, "; ".join(facts), " ".join(dict.fromkeys(fixes)))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
