"""Puts the policy between a call and its upstream: reads the file, decides, limits, asks, cuts, and keeps the log.

Without a policy file `Governor.current` costs a look or two at the disk, and nothing else here is loaded. A file that
has changed counts from the next call on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolscout.errors import InvalidArguments, NotAllowed, NotFound, ToolscoutError, UpstreamError
from toolscout.records import JsonObject, Tool
from toolscout.server.asking import Asking, CannotAsk
from toolscout.server.wire import text_result
from toolscout.validation import unwrap_envelope

if TYPE_CHECKING:
    from toolscout.server.client_identity import ClientIdentity
    from toolscout.server.policy.audit import AuditLog
    from toolscout.server.policy.file import AuditOptions, Decision, Policy
    from toolscout.server.policy.ratelimit import Limiter
    from toolscout.server.policy.spent import Spent
    from toolscout.server.upstreams.errors import Refused
    from toolscout.server.upstreams.link import Relayed
    from toolscout.settings import Settings

logger = logging.getLogger(__name__)

_LONGEST_ID = 300


class PolicyRefusal(NotAllowed):
    """A call that the policy does not let through. ``kind`` says why, for programs: ``policy_denied``,
    ``approval_unavailable``, ``approval_unanswered``, ``approval_declined``, ``approval_outdated``,
    ``question_too_large``, ``rate_limited`` or ``policy_broken``."""

    def __init__(self, kind: str, message: str, hint: str = "", **facts: Any) -> None:
        super().__init__(message, hint)
        self.kind = kind
        self.facts = facts

    def result(self) -> JsonObject:
        """As a tool error; ``structuredContent`` says the same to programs."""
        said = {"refused": self.kind, "message": self.sentence(), **self.facts}
        return {**text_result(self.sentence(), is_error=True), "structuredContent": said}


class Governor:
    """The policy of one installation, as it is on disk now."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = settings.policy_file
        self._stamp: tuple[int, int, int] | None = None
        self._policy: Policy | None = None
        self._error: PolicyRefusal | None = None
        self._audit: AuditLog | None = None
        self._logs: list[AuditLog] = []
        """Every one that was written to: what is turned off may still have lines to write."""
        self._limiter: Limiter | None = None
        self._spent: Spent | None = None

    def current(self) -> Policy | None:
        """The policy, None where there is no file.

        Raises PolicyRefusal for one that cannot be used, and for one that was there when this process began to use it
        and is gone: to stop, a policy is emptied, not deleted under a running server.
        """
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            # A link that leads nowhere is a policy that somebody wants: its disk is not mounted, or the like.
            if self._stamp is None and self._settings.policy is None and not self._path.is_symlink():
                return None
            stamp = (0, 0, 0)
        except OSError:
            stamp = (0, 0, 1)
        if stamp != self._stamp:
            self._read(stamp)
        if self._error is not None:
            raise self._error
        return self._policy

    def _read(self, stamp: tuple[int, int, int]) -> None:
        from toolscout.server.policy.file import PolicyBroken, read_audit, read_policy
        from toolscout.server.policy.ratelimit import Limiter
        from toolscout.server.policy.spent import Spent

        # Until it is read: whatever goes wrong on the way, nothing is called.
        self._policy = None
        self._error = PolicyRefusal("policy_broken", f"The policy file {self._path} cannot be read.")
        self._stamp = stamp
        self._limiter = self._limiter or Limiter()
        self._spent = self._spent or Spent(self._settings.home)
        try:
            policy = read_policy(self._path)
            options = policy.audit
            if options is None:
                self._audit = None
            else:
                self._log_to(options)
        except PolicyBroken as error:
            # The log goes on as it was last asked for; what is refused now is to be seen there.
            if self._audit is None and (options := read_audit(self._path)) is not None:
                self._log_to(options)
            logger.error("%s", error.sentence())
            self._error = PolicyRefusal("policy_broken", str(error), error.hint)
        except Exception:
            logger.exception("The policy file %s cannot be read.", self._path)
        else:
            self._policy, self._error = policy, None

    def admit_search(self, tool: str, identity: Callable[[], ClientIdentity]) -> None:
        """Count one call of ``find_tools`` or ``suggest_call`` where the policy limits them.

        Raises PolicyRefusal where the client has used up its rate. A policy that cannot be used stops no search.
        """
        try:
            policy = self.current()
        except PolicyRefusal:
            return
        if policy is None or (rate := policy.rates.search) is None:
            return
        assert self._limiter is not None
        if (empty := self._limiter.take([(f"search {identity().key}", rate)])) is not None:
            said = f"the policy allows this client {rate} of find_tools and suggest_call together"
            raise _rate_limited(f"{tool} did not search: {said}, and that is used up.", empty[1])

    def _log_to(self, options: AuditOptions) -> None:
        from toolscout.server.policy.audit import AuditLog, log_file

        path = log_file(self._settings.home, options)
        if self._audit is None or (path, options) != (self._audit.path, self._audit.options):
            self._audit = AuditLog(self._settings.home, options)
            self._logs.append(self._audit)

    def passage(
        self, tool_id: object, identity: Callable[[], ClientIdentity], arguments: object = None
    ) -> Passage | None:
        """One call's way through the policy; None where there is no policy. ``arguments`` as they came.

        Raises PolicyRefusal as `current`; the log has its line then.
        """
        try:
            policy = self.current()
        except PolicyRefusal as error:
            if self._audit is not None:
                from toolscout.server.policy.file import Policy

                self._passage(Policy(), tool_id, identity, arguments).close(error.kind)
            raise
        return None if policy is None else self._passage(policy, tool_id, identity, arguments)

    def _passage(
        self, policy: Policy, tool_id: object, identity: Callable[[], ClientIdentity], arguments: object
    ) -> Passage:
        assert self._limiter is not None and self._spent is not None
        return Passage(policy, self._limiter, self._spent, self._audit, tool_id, identity(), self._again, arguments)

    def turned_away(
        self, tool_id: object, arguments: object, identity: Callable[[], ClientIdentity], outcome: str
    ) -> None:
        """A call that was refused before the policy was asked: a line in the log, where one is kept."""
        with contextlib.suppress(PolicyRefusal):  # then the line is there, and says so
            if (passage := self.passage(tool_id, identity, arguments)) is not None:
                passage.close(outcome)

    def close(self) -> None:
        """Write what the logs still wait for. Blocks."""
        for log in self._logs:
            log.close()
        self._logs.clear()
        self._audit, self._stamp = None, None

    def _again(self) -> tuple[Policy, AuditLog | None]:
        """Policy and audit log as they are now. Raises PolicyRefusal as `current`."""
        policy = self.current()
        assert policy is not None, "a policy that was read is never forgotten"
        return policy, self._audit


class Passage:
    """One call's way through the policy. First `decide`, then `admit`, then `finish` or `fail`; last `close`."""

    def __init__(
        self,
        policy: Policy,
        limiter: Limiter,
        spent: Spent,
        audit: AuditLog | None,
        tool_id: object,
        client: ClientIdentity,
        again: Callable[[], tuple[Policy, AuditLog | None]],
        given: object = None,
    ) -> None:
        self.decision: Decision | None = None
        self._policy = policy
        self._limiter = limiter
        self._spent = spent
        self._audit = audit
        self._tool_id = tool_id
        self._client = client
        self._again = again
        self._tool: Tool | None = None
        self._given = given
        self._arguments: Mapping[str, Any] = {}
        self._looked_at = False
        self._kept: tuple[str, JsonObject] | None = None
        self._id = ""
        self._outcome = ""
        self._approved = False
        self._cut = False
        self._started = time.perf_counter()

    def about(self, tool: Tool) -> None:
        """The tool that the call is about, where it may end before it is decided on."""
        self._tool = tool

    def decide(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """What the rules say of the call. Raises PolicyRefusal where they deny it."""
        from toolscout.server.policy.file import Action

        self._tool, self._arguments, self._looked_at = tool, arguments, True
        self.decision = decision = self._policy.decide(tool, arguments)
        if decision.action is Action.DENY:
            reason = decision.rule.reason if decision.rule is not None else ""
            said = f" {reason.rstrip('.')}." if reason else ""
            raise PolicyRefusal(
                "policy_denied",
                f"The policy of this installation denies this call of '{tool.tool_id}' ({decision.label}).{said}",
                "Do not try to get round it: go on without it, or tell the user.",
                rule=decision.label,
            )

    def decide_again(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """As `decide`, by the policy of now: since the first time a person was asked, and that may take minutes."""
        self._policy, self._audit = self._again()
        self.decide(tool, arguments)

    def shown(self) -> JsonObject:
        """What a dry run says of the policy."""
        assert self.decision is not None
        self._outcome = "dry_run"
        return {"action": str(self.decision.action), "rule": self.decision.label}

    async def admit(self, asking: Asking | None, relayed: Relayed, tool_now: Callable[[], Tool]) -> JsonObject | None:
        """Limit the rate and ask, where the policy wants it. None when the call may be made, else its result.

        ``tool_now`` fetches the tool again after a question, or raises ToolscoutError where it may not be called now.

        Raises PolicyRefusal, and NotAllowed where the audit log cannot be written.
        """
        from toolscout.server.policy.file import Action

        assert self.decision is not None
        if self._audit is not None:
            await self._audit.ready()
        if self.decision.action is Action.ASK:
            if (result := await self._ask(asking, relayed, tool_now)) is not None:
                return result
        else:
            self._take()
        if self._audit is not None:
            self._id = os.urandom(8).hex()
            await self._audit.begin(self._entry("begun"))
        return None

    async def _ask(self, asking: Asking | None, relayed: Relayed, tool_now: Callable[[], Tool]) -> JsonObject | None:
        from toolscout.server.policy import approval

        assert self._tool is not None and self.decision is not None
        digest = approval.digest_of(self._tool, self._arguments)
        standing, before = approval.standing_of(relayed), ""
        if standing is not None and standing.digest == digest:
            if standing.approved or standing.answer is not None:
                self._answered(approval.a_yes() if standing.approved else standing.answer)
                if standing.nonce not in self._spent:
                    # First: a yes is not used up by a call that is not made.
                    self._take(answered=not standing.approved)
                    if self._spent.add(standing.nonce):
                        return None
                self._approved, before = False, "The same call was approved before; this is another one.\n"
        elif standing is not None:
            before = "What would be called is not what you were shown before.\n"
        if asking is None:
            raise self._unavailable()
        self._take(question=True)
        try:
            params = approval.question_params(self._tool, self._arguments, self.decision, before)
        except NotAllowed as error:
            raise PolicyRefusal("question_too_large", str(error), error.hint) from None
        if asking.during is None:
            self._outcome = "asked"
            return approval.question(params, digest)
        try:
            answer = await asking.during(params)
        except CannotAsk:
            raise self._unavailable() from None
        self._answered(answer)
        self._check_again(digest, tool_now)
        self._take(answered=True)
        return None

    def _check_again(self, digest: str, tool_now: Callable[[], Tool]) -> None:
        """Whether a yes still stands for what would be called: tool, its review and the policy may have changed."""
        from toolscout.server.policy import approval

        tool = tool_now()
        if approval.digest_of(tool, self._arguments) != digest:
            raise PolicyRefusal(
                "approval_outdated",
                f"The tool '{tool.tool_id}' has changed while the user was asked about it, so it was not called.",
                "Look at it again with find_tools, and call it again if it still fits: the user is asked anew.",
            )
        self.decide_again(tool, self._arguments)
        if self._audit is not None:
            self._audit.check()

    def _answered(self, answer: object) -> None:
        from toolscout.server.asking import unanswered
        from toolscout.server.policy import approval

        assert self._tool is not None
        if unanswered(answer):
            raise PolicyRefusal(
                "approval_unanswered",
                f"The user was to be asked whether '{self._tool.tool_id}' may be called with these arguments, and no "
                "answer came, so it was not called.",
                "Go on without it, and tell the user, who can make the call in a terminal (toolscout invoke).",
            )
        if not approval.is_yes(answer):
            raise PolicyRefusal(
                "approval_declined",
                f"The user was asked whether '{self._tool.tool_id}' may be called with these arguments and did not "
                "agree, so it was not called.",
                "Go on without it.",
            )
        self._approved = True

    def _unavailable(self) -> PolicyRefusal:
        assert self._tool is not None and self.decision is not None
        return PolicyRefusal(
            "approval_unavailable",
            f"The policy of this installation wants a person to approve this call of '{self._tool.tool_id}' "
            f"({self.decision.label}), and through this client nobody can be asked: it has declared no form "
            "elicitation, or it speaks the 2025 protocol over HTTP.",
            "A person can make the call in a terminal (toolscout invoke), use a client that can ask, or change the "
            "policy.",
            rule=self.decision.label,
        )

    def _take(self, *, question: bool = False, answered: bool = False) -> None:
        """Count a call, or a question about one: that counts for the client alone, but the call must have room, too.

        ``answered``: the question about this call has been counted for the client, so the call is for the server alone.
        """
        assert self._tool is not None
        rates = self._policy.rates
        client = [(f"client {self._client.key}", rates.client)] if rates.client is not None and not answered else []
        upstream = rates.of_upstream(self._tool.server_id)
        wanted = [*client, *([(f"upstream {self._tool.server_id}", upstream)] if upstream is not None else [])]
        empty = (self._limiter.empty(wanted) or self._limiter.take(client)) if question else self._limiter.take(wanted)
        if empty is None:
            return
        whose = "this client" if empty[0].startswith("client ") else f"the server '{self._tool.server_id}'"
        rate = dict(wanted)[empty[0]]
        raise _rate_limited(
            f"'{self._tool.tool_id}' was not called: the policy allows {whose} {rate}, and that is used up.", empty[1]
        )

    def forward(self, relayed: Relayed) -> Relayed:
        """What is relayed to the upstream: our question and its answer are none of its business; and what comes back
        on the way, with its messages cut."""
        from toolscout.server.policy.approval import without_ours
        from toolscout.server.policy.trim import Messages

        relayed = without_ours(relayed)
        report, limit = relayed.get("on_progress"), self._policy.max_chars(self.decision)
        if report is None or limit is None:
            return relayed
        messages = Messages(limit)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await report(progress, total, messages.cut(message))

        return {**relayed, "on_progress": on_progress}

    def finish(self, result: JsonObject) -> JsonObject:
        """The upstream's result as the policy lets it through: cut, and its own questions with the yes behind them.

        Raises PolicyRefusal for questions larger than the policy allows: half a question is none.
        """
        from toolscout.server.policy.trim import question_fits, within

        limit = self._policy.max_chars(self.decision)
        if result.get("resultType") == "input_required":
            self._outcome = "input_required"
            if limit is not None and not question_fits(result, limit):
                assert self._tool is not None
                raise PolicyRefusal(
                    "question_too_large",
                    f"'{self._tool.tool_id}' asks something in return that is larger than the {limit:,} characters "
                    "that the policy allows it, so nobody was asked and the call has not ended.",
                    "Call it with arguments that leave nothing to ask, or tell the user.",
                )
            if not self._approved:
                return result
            from toolscout.server.policy.approval import carrying_on, digest_of

            assert self._tool is not None
            return carrying_on(result, digest_of(self._tool, self._arguments))
        self._outcome = "tool_error" if result.get("isError") else "ok"
        if limit is None:
            return result
        result, self._cut = within(result, limit)
        return result

    def finish_error(self, error: UpstreamError, usage: str = "") -> JsonObject:
        """An upstream's failure as a tool error: its words are cut as its results are. What is ours (the error's hint,
        and ``usage``) stays whole and comes on top."""
        from toolscout.server.policy.trim import within

        said = str(error)
        ours = "\n".join(part for part in (error.hint, usage) if part)
        limit = self._policy.max_chars(self.decision)
        if limit is None or len(said) <= limit:
            return text_result("\n".join(part for part in (error.sentence(), usage) if part), is_error=True)
        result, self._cut = within(text_result(said, is_error=True), limit)
        return {**result, "content": [*result["content"], *([{"type": "text", "text": ours}] if ours else [])]}

    def finish_refusal(self, error: Refused) -> Refused:
        """The protocol's own error, within the policy's limit: its text is cut, and data that is larger left out."""
        from toolscout.server.upstreams.errors import Refused

        limit = self._policy.max_chars(self.decision)
        if limit is None:
            return error
        said, data = str(error), error.data
        keeps = len(json.dumps(data, ensure_ascii=False)) <= limit
        self._cut = len(said) > limit or not keeps
        return Refused(said[:limit], error.code, data if keeps else None)

    def note(self, outcome: str) -> None:
        """How the call has ended, where that is neither a result of the upstream nor an error."""
        self._outcome = outcome

    def fail(self, error: ToolscoutError) -> None:
        """The error that ended the call."""
        if isinstance(error, PolicyRefusal):
            self._outcome = error.kind
            return
        kinds = {InvalidArguments: "invalid_arguments", NotFound: "not_found", NotAllowed: "not_allowed",
                 UpstreamError: "upstream_error"}  # fmt: skip
        self._outcome = next((name for kind, name in kinds.items() if isinstance(error, kind)), "error")

    def close(self, outcome: str = "") -> None:
        """The audit log's line on how the call ended; it is written soon."""
        if self._audit is None:
            return
        entry = self._entry(outcome or self._outcome or "error")
        entry["ms"] = round((time.perf_counter() - self._started) * 1000, 1)
        if self._cut:
            entry["cut"] = True
        self._audit.end(entry)

    def _entry(self, outcome: str) -> JsonObject:
        """What both lines of a call say. ``id`` only where there are two."""
        assert self._audit is not None
        entry: JsonObject = {"at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        if self._id:
            entry["id"] = self._id
            self._kept = self._kept or self._what()
        tool_id, arguments = self._kept or self._what()
        entry |= {"client": self._who(), "tool_id": tool_id, "outcome": outcome, "arguments": arguments}
        if self.decision is not None:
            entry |= {"action": str(self.decision.action), "rule": self.decision.label}
        if self._approved:
            entry["approved"] = True
        return entry

    def _who(self) -> JsonObject:
        """The client as it is kept. The name that it gives itself is any text, and may hold a secret."""
        from toolscout.server.secrecy.suspect import hide_suspect

        client = self._client.as_json()
        return {**client, "name": hide_suspect(client["name"])} if "name" in client else client

    def _what(self) -> tuple[str, JsonObject]:
        """Tool and arguments as they are kept. Of what the catalogue does not know the names are the client's, too."""
        assert self._audit is not None
        tool, arguments = self._tool, self._arguments
        if not self._looked_at:
            arguments = _as_given(self._tool_id, self._given, tool.input_schema if tool is not None else {})
        if tool is not None:
            known = tool.input_schema.get("properties")
            names = known if isinstance(known, dict) else {}
            return tool.tool_id, self._audit.arguments(tool.server_id, tool.name, arguments, names)
        from toolscout.server.secrecy.suspect import plain_name

        tool_id = str(self._tool_id)
        server_id, _, name = tool_id.rpartition("/")
        return plain_name(tool_id, _LONGEST_ID), self._audit.arguments(server_id, name, arguments)


def _as_given(tool_id: object, given: object, schema: JsonObject) -> Mapping[str, Any]:
    """Arguments of a call that came to nothing before they were looked at, as far as they can be made out."""
    try:
        return unwrap_envelope(tool_id if isinstance(tool_id, str) else "", given, schema)
    except ToolscoutError:
        return {"arguments": given}


def _rate_limited(message: str, wait: float) -> PolicyRefusal:
    """``wait``: seconds until there is room again."""
    seconds = max(0.1, round(wait, 1))
    return PolicyRefusal("rate_limited", message, f"Try again in {seconds:g} s.", retry_after_s=seconds)
