"""Whether a tool only reads, or may change something: by its annotations, and by its words.

Annotations are a server's own claims and most servers make none. So what a tool declares holds unless its name says
worse, and a tool that declares nothing goes by the first verb of its name, else of its description. What cannot be told
counts as changing something: a run that nobody watches must not find out.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolscout.index.words import split_identifier
from toolscout.records import Tool

_READS_WORDS = """
get list search find read fetch query lookup look show view describe check count retrieve inspect browse summarize
summarise calculate compute convert compare analyze analyse explain validate verify parse format translate detect
extract classify estimate predict recommend suggest preview diff ping echo decode encode hash download lint explore
discover scan measure forecast current today now info whoami is has screenshot solve track trace geocode reverse
identify recognize scrape decrypt autocomplete transcribe interpret
"""
_READS = frozenset(_READS_WORDS.split())
_WRITES_WORDS = """
create add insert new make write update edit modify set put patch post send publish submit upload save store delete
remove drop destroy purge erase clear wipe reset revoke cancel close archive move rename copy merge push commit deploy
start stop restart kill run execute exec install uninstall enable disable approve reject assign invite grant pay buy
sell order book transfer withdraw deposit mint burn swap stake sign trade schedule subscribe unsubscribe follow
unfollow like share reply comment draft append replace apply trigger launch click type press drag fill navigate open
register login logout connect disconnect import sync configure toggle play pause resume speak notify alert lock unlock
terminate provision scale rollback restore fork star upsert truncate alter mutate record log tweet message email call
block unblock ban mute attach detach link unlink complete mark flag pin unpin remember forget generate render change
switch manage handle prepare activate deactivate upgrade rebuild clean evaluate authenticate setup request
"""
_WRITES = frozenset(_WRITES_WORDS.split())
VERBS = _READS | _WRITES
"""Verbs that tools are named by."""

_LAST_WORDS = "create delete update remove add edit write insert send start stop set reset deploy execute"
_LAST = frozenset(_LAST_WORDS.split())
"""Verbs that stand last in many names (``log_policies_delete``)."""

_DESTROYS_WORDS = "delete remove drop destroy purge erase wipe truncate kill terminate uninstall revoke"
_DESTROYS = frozenset(_DESTROYS_WORDS.split())


@dataclass(frozen=True)
class Act:
    """``writes``: whether calling may change something; ``why`` names what it was told by."""

    writes: bool
    why: str


def act_of(tool: Tool) -> Act:
    """What calling a tool does, as far as it can be told before."""
    hints = tool.annotations or {}
    names = [w.casefold() for w in split_identifier(tool.name)]
    if hints.get("destructiveHint") is True and not tool.read_only:
        return Act(True, "declares to be destructive")
    if tool.read_only:
        worse = next((w for w in names[:2] if w in _DESTROYS), "")
        return (
            Act(True, f"declares to read only, but is named {worse}") if worse else Act(False, "declares to read only")
        )
    if hints.get("readOnlyHint") is False:
        return Act(True, "declares to write")
    if names and names[-1] in _LAST and names[0] not in _READS:
        return Act(True, f"name says {names[-1]}")
    for words, where in ((names, "name"), (_opening(tool.description), "description")):
        verb = next((w for w in words if w in _READS or w in _WRITES), "")
        if verb:
            return Act(verb in _WRITES, f"{where} says {verb}")
    return Act(True, "cannot be told")


def _opening(description: str) -> list[str]:
    """The first word of a description, without the ending of the third person."""
    first = (description.split() or [""])[0].strip(".,:;*_`'\"").casefold()
    return [first, first.removesuffix("s"), first.removesuffix("es")]
