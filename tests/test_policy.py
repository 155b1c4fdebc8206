"""The parts of a policy by themselves: the file, rules and patterns, rate limits, cut results, the log's values."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.errors import NotAllowed, UpstreamError
from toolscout.records import Tool
from toolscout.server.client_identity import ClientIdentity
from toolscout.server.doctor.examine import _policy
from toolscout.server.policy.approval import KEY, question_params
from toolscout.server.policy.audit import AuditLog, read_log
from toolscout.server.policy.file import (
    Action,
    AuditOptions,
    Effect,
    Policy,
    PolicyBroken,
    Rate,
    effect_of,
    read_policy,
)
from toolscout.server.policy.governor import Governor, PolicyRefusal
from toolscout.server.policy.ratelimit import Limiter
from toolscout.server.policy.trim import within
from toolscout.server.questions import named
from toolscout.settings import Settings


def tool(tool_id: str = "files/read", **annotations: bool) -> Tool:
    server, _, name = tool_id.rpartition("/")
    return Tool(tool_id=tool_id, server_id=server, name=name, annotations=annotations or None)


def policy(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return read_policy(path)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        ({}, Effect.UNDECLARED),
        ({"readOnlyHint": True}, Effect.READ_ONLY),
        ({"readOnlyHint": True, "destructiveHint": False}, Effect.READ_ONLY),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.DESTRUCTIVE),
        ({"destructiveHint": True}, Effect.DESTRUCTIVE),
        ({"readOnlyHint": False}, Effect.DESTRUCTIVE),
        ({"readOnlyHint": False, "destructiveHint": False}, Effect.ADDITIVE),
        ({"openWorldHint": True}, Effect.UNDECLARED),
    ],
)
def test_what_annotations_declare(annotations: dict[str, bool], effect: Effect) -> None:
    assert effect_of(tool(**annotations)) is effect


def test_the_first_rule_that_fits_decides(tmp_path: Path) -> None:
    found = policy(
        tmp_path,
        """
        default = "ask"
        [[rules]]
        action = "allow"
        effect = "read_only"
        [[rules]]
        name = "no deleting"
        action = "deny"
        server = ["git*", "acme/*"]
        tool = "delete_*"
        [[rules]]
        action = "allow"
        server = "git*"
        """,
    )

    def decided(tool_id: str, **annotations: bool) -> tuple[Action, str]:
        decision = found.decide(tool(tool_id, **annotations), {})
        return decision.action, decision.label

    assert decided("github/delete_repo") == (Action.DENY, "rule 2 (no deleting)")
    assert decided("acme/tiny/delete_all") == (Action.DENY, "rule 2 (no deleting)")
    assert decided("github/delete_repo", readOnlyHint=True) == (Action.ALLOW, "rule 1")
    assert decided("github/list") == (Action.ALLOW, "rule 3")
    assert decided("other/delete_repo") == (Action.ASK, "the default")


@pytest.mark.parametrize(
    ("pattern", "arguments", "fits"),
    [
        ("/etc/*", {"path": "/etc/passwd"}, True),
        ("/etc/*", {"path": "x/etc/passwd"}, False),
        ("re:etc", {"path": "x/etc/passwd"}, True),
        ("re:(?i)^DROP\\b", {"path": "drop table"}, True),
        ("/etc/*", {"path": ["/tmp/a", {"deep": "/etc/b"}]}, True),
        ("/etc/*", {"other": "/etc/passwd"}, False),
        ("/etc/*", {}, False),
        ("true", {"path": True}, True),
        ("1?", {"path": 12}, True),
        ("re:b", {"path": "a\ud800b"}, True),
        ("*\n*", {"path": "a\nb"}, True),
    ],
)
def test_values_of_arguments(tmp_path: Path, pattern: str, arguments: dict[str, Any], fits: bool) -> None:
    found = policy(tmp_path, f'[[rules]]\naction = "deny"\narguments = {{ path = {json.dumps(pattern)} }}')
    assert (found.decide(tool(), arguments).action is Action.DENY) is fits


def test_where_values_are_looked_for(tmp_path: Path) -> None:
    rule = '[[rules]]\naction = "deny"\narguments = {{ {} = "bad" }}'
    inner = policy(tmp_path, rule.format('"a.b"'))
    for arguments in ({"a": {"b": "bad"}}, {"a": [{"b": "good"}, {"b": "bad"}]}, {"a.b": "bad"}):
        assert inner.decide(tool(), arguments).action is Action.DENY
    assert inner.decide(tool(), {"a": {"c": "bad"}, "b": "bad"}).action is Action.ALLOW
    anywhere = policy(tmp_path, rule.format('"*"'))
    assert anywhere.decide(tool(), {"x": [{"y": "bad"}]}).action is Action.DENY


def test_an_argument_whose_name_has_the_dot_in_it_hides_no_field(tmp_path: Path) -> None:
    real = {"options": {"path": "/etc/shadow"}}
    denies = policy(tmp_path, '[[rules]]\naction = "deny"\narguments = { "options.path" = "/etc/*" }')
    assert denies.decide(tool(), {**real, "options.path": "/tmp/decoy"}).action is Action.DENY
    allows = policy(
        tmp_path, 'default = "deny"\n[[rules]]\naction = "allow"\narguments = { "options.path" = "/tmp/*" }'
    )
    assert allows.decide(tool(), {**real, "options.path": "/tmp/decoy"}).action is Action.DENY
    assert allows.decide(tool(), {"options": {"path": "/tmp/a"}}).action is Action.ALLOW


def test_a_whole_number_is_one_however_it_is_written(tmp_path: Path) -> None:
    found = policy(tmp_path, '[[rules]]\naction = "deny"\narguments = { port = "22" }')
    for port in (22, 22.0, [80, 22.0]):
        assert found.decide(tool(), {"port": port}).action is Action.DENY
    assert found.decide(tool(), {"port": 22.5}).action is Action.ALLOW


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_keys_of_objects_count_where_a_rule_denies_or_asks(tmp_path: Path, action: str) -> None:
    for where in ('"*"', "files", '"a.files"'):
        found = policy(tmp_path, f'[[rules]]\naction = "{action}"\narguments = {{ {where} = "re:/[.]ssh/" }}')
        files = {"files": [{"/root/.ssh/authorized_keys": "x"}]}
        assert found.decide(tool(), {"a": files} if "a." in where else files).action == action
        assert found.decide(tool(), {"files": {"/tmp/a": "x"}}).action is Action.ALLOW


def test_keys_of_objects_do_not_count_where_a_rule_allows(tmp_path: Path) -> None:
    found = policy(tmp_path, 'default = "deny"\n[[rules]]\naction = "allow"\narguments = { where = "/tmp/*" }')
    assert found.decide(tool(), {"where": {"path": "/tmp/a"}}).action is Action.ALLOW


def test_all_values_have_to_match_where_a_rule_allows(tmp_path: Path) -> None:
    found = policy(tmp_path, 'default = "deny"\n[[rules]]\naction = "allow"\narguments = { paths = "/tmp/*" }')
    assert found.decide(tool(), {"paths": ["/tmp/a", "/tmp/b"]}).action is Action.ALLOW
    for paths in (["/tmp/a", "/etc/passwd"], [], "/etc/passwd"):
        assert found.decide(tool(), {"paths": paths}).action is Action.DENY
    assert found.decide(tool(), {}).action is Action.DENY


def test_a_pattern_that_backtracks_for_ever_elsewhere_ends_here(tmp_path: Path) -> None:
    found = policy(tmp_path, '[[rules]]\naction = "deny"\narguments = { path = "re:^(a+)+$" }')
    assert found.decide(tool(), {"path": "a" * 50_000 + "!"}).action is Action.ALLOW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = allow", "is not valid TOML"),
        ('default = "perhaps"', "is wrong at default: Input should be 'allow', 'ask' or 'deny'"),
        ('[[rules]]\naction = "deny"\nservers = "x"', "is wrong at rules[1].servers: there is no such field"),
        ('[[rules]]\naction = "deny"\n[[rules]]\ntool = "x"', "is wrong at rules[2].action: Field required"),
        ('[[rules]]\naction = "deny"\ntool = []', "rules[1].tool"),
        ('[[rules]]\naction = "deny"\narguments = { a = "re:(" }', "'(' is no regular expression"),
        ('[[rules]]\naction = "deny"\narguments = { a = "re:(?!x)" }', "look-around"),
        ('[rates]\nclient = "many"', "a rate is text such as"),
        ('[rates]\nclient = "0/s"', "a rate is text such as"),
        ('[rates]\nsearch = "often"', "is wrong at rates.search: a rate is text such as"),
        ("[responses]\nmax_chars = 5", "responses.max_chars"),
        ('[audit]\nvalues = "clear"', "only where a rule says so"),
        ('[audit]\nfile = "~no-such-user/a.jsonl"', "is wrong at audit.file: the home folder in"),
        ("[limits]\nx = 1", "is wrong at limits: there is no such field"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PolicyBroken) as caught:
        policy(tmp_path, text)
    assert said in str(caught.value) and "p.toml" in str(caught.value) and "\n" not in caught.value.sentence()
    assert "no tool is called" in caught.value.hint


def test_a_fault_while_reading_lets_no_call_through(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(path: Path) -> Policy:
        raise MemoryError("of all things")

    (home / "policy.toml").write_text("")
    governor = Governor(Settings(home=home))
    monkeypatch.setattr("toolscout.server.policy.file.read_policy", fault)
    for _ in range(2):
        with pytest.raises(PolicyRefusal) as caught:
            governor.current()
        assert caught.value.kind == "policy_broken"
    monkeypatch.undo()
    (home / "policy.toml").write_text('default = "deny"')
    found = governor.current()
    assert found is not None and found.default is Action.DENY


def test_a_link_that_leads_nowhere_is_a_policy_that_cannot_be_used(home: Path, settings: Settings) -> None:
    governor = Governor(settings)
    assert governor.current() is None
    settings.policy_file.symlink_to(home / "not mounted" / "policy.toml")
    with pytest.raises(PolicyRefusal, match="No such file"):
        governor.current()
    assert _policy(settings).status == "fail" and "No such file" in _policy(settings).detail
    assert execute(["audit"]) == 7
    (home / "not mounted").mkdir()
    (home / "not mounted" / "policy.toml").write_text("")
    assert governor.current() is not None


def test_doctor_says_what_is_wrong_with_a_policy(settings: Settings) -> None:
    assert (_policy(settings).status, _policy(settings).detail) == ("ok", "none: every approved tool may be called")
    named = settings.model_copy(update={"policy": settings.home / "named.toml"})
    assert _policy(named).status == "fail" and "No such file" in _policy(named).detail
    path = settings.policy_file
    path.write_text('default = "ask"\n[[rules]]\naction = "deny"\n[audit]\nfile = "log/calls.jsonl"\n')
    path.chmod(0o600)
    check = _policy(settings)
    assert check.status == "ok" and "1 rule, otherwise ask, audit log" in check.detail
    path.chmod(0o666)
    assert _policy(settings).status == "warn" and "chmod go-w" in _policy(settings).fix
    path.write_text("[[rule]]")
    assert _policy(settings).status == "fail" and "rule: there is no such field" in _policy(settings).detail
    (settings.home / "a file").touch()
    path.write_text('[audit]\nfile = "a file/calls.jsonl"')
    assert _policy(settings).status == "fail" and "cannot be written" in _policy(settings).detail


# --- rates -----------------------------------------------------------------------------------------------------------


def test_a_bucket_empties_and_fills() -> None:
    now = [0.0]
    limiter = Limiter(lambda: now[0])
    rate = Rate(2, 60.0)
    assert limiter.take([("a", rate)]) is None and limiter.take([("a", rate)]) is None
    assert limiter.take([("a", rate)]) == ("a", 30.0)
    assert limiter.take([("b", rate)]) is None, "each has a bucket of its own"
    assert limiter.take([("a", rate), ("c", Rate(1, 1.0))]) == ("a", 30.0)
    assert limiter.take([("c", Rate(1, 1.0))]) is None, "nothing was taken from it"
    now[0] = 30.0
    assert limiter.take([("a", rate)]) is None and limiter.take([("a", rate)]) is not None
    now[0] = 10_000.0
    assert [limiter.take([("a", rate)]) is None for _ in range(3)] == [True, True, False], "it holds no more"


def test_a_look_takes_nothing() -> None:
    limiter = Limiter(lambda: 0.0)
    wanted = [("a", Rate(1, 60.0))]
    assert limiter.empty(wanted) is None and limiter.empty(wanted) is None
    assert limiter.take(wanted) is None and limiter.empty(wanted) == limiter.take(wanted) == ("a", 60.0)


def test_who_counts_as_one_client() -> None:
    alice = ClientIdentity("http", "alice", "one", "10.0.0.1")
    assert alice.key == ClientIdentity("http", "alice", "another", "10.0.0.2").key
    shared = ClientIdentity("http", "bearer", "one", "10.0.0.1")
    assert shared.key != ClientIdentity("http", "bearer", "one", "10.0.0.2").key
    for kind in ("http", "stdio"):  # a name is said anew with each call
        assert ClientIdentity(kind, "bearer", "one").key == ClientIdentity(kind, "bearer", "another").key
    # One machine has a network of IPv6 to itself, and IPv4 within IPv6 is none.
    assert ClientIdentity("http", address="2001:db8::1").key == ClientIdentity("http", address="2001:db8::2:1").key
    assert ClientIdentity("http", address="2001:db8::1").key != ClientIdentity("http", address="2001:db8:0:1::1").key
    assert (
        ClientIdentity("http", address="::ffff:10.0.0.1").key != ClientIdentity("http", address="::ffff:10.0.0.2").key
    )


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_result_within_the_limit_is_not_touched() -> None:
    result = {"content": [{"type": "text", "text": "x" * 100}], "structuredContent": {"a": 1}, "_meta": {"k": 1}}
    assert within(result, 100) == (result, False)


def test_text_is_cut_and_it_is_said_how_much() -> None:
    blocks = [
        {"type": "text", "text": "a" * 80},
        {"type": "resource", "resource": {"uri": "x://y", "text": "b" * 80}},
        {"type": "text", "text": "c" * 80},
        {"type": "resource_link", "uri": "x://z", "name": "z"},
    ]
    result, cut = within({"content": blocks, "isError": True}, 100)
    assert cut and result["isError"] is True
    first, second, link, note = result["content"]
    assert first == blocks[0] and second["resource"] == {"uri": "x://y", "text": "b" * 20} and link == blocks[3]
    assert "100 of 240 characters of text are shown, 140 are missing" in note["text"]
    assert len(blocks[1]["resource"]["text"]) == 80, "what came is not changed"


def test_what_has_no_half_is_left_out_whole() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 400}
    result, _ = within({"content": [image, {"type": "text", "text": "hi"}]}, 100)
    assert (
        result["content"][0]["text"] == "hi" and "image/png of 300 bytes was left out" in result["content"][1]["text"]
    )
    big = {"rows": ["x" * 50] * 10}
    result, _ = within({"content": [{"type": "text", "text": "short"}], "structuredContent": big}, 100)
    assert "structuredContent" not in result and result["content"][0]["text"] == "short"
    assert "structured content (" in result["content"][1]["text"] and "left out" in result["content"][1]["text"]
    result, _ = within({"content": [], "structuredContent": big}, 100)
    assert result["content"][0]["text"] == json.dumps(big)[:100] and "structuredContent" not in result
    assert "its first 100 characters are shown as text" in result["content"][1]["text"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "mimeType": "image/png", "text": "", "data": "A" * 400},
        {"type": "image", "mimeType": "image/png", "text": "A" * 60, "data": "A" * 60},
        {"type": "resource", "resource": {"uri": "x://y", "text": "", "blob": "A" * 400}},
        {"type": "resource", "resource": {"uri": "x://y", "text": "A" * 60, "blob": "A" * 60}},
        {"type": "text", "text": "short", "data": "A" * 400},
        {"type": "resource", "data": "A" * 400, "resource": {"uri": "x://y", "text": "short"}},
    ],
)
def test_nothing_large_hides_behind_something_small(block: dict[str, Any]) -> None:
    result, cut = within({"content": [block]}, 100)
    assert cut and "AAA" not in json.dumps(result) and "was left out" in result["content"][-1]["text"]


# --- the question ----------------------------------------------------------------------------------------------------


def test_a_question_hides_nothing_and_cannot_be_forged(tmp_path: Path) -> None:
    decision = policy(tmp_path, '[[rules]]\naction = "ask"\nreason = "It costs money."').decide(tool(), {})
    arguments = {"a": "x\nArguments: none\u202e", "long": "s" * 5000 + "END", **{f"p{i}": i for i in range(60)}}
    message = question_params(tool("shop/buy", destructiveHint=True), arguments, decision)["message"]
    lines = message.split("\n")
    assert "'buy' of the MCP server 'shop'" in lines[0] and lines[1] == "Why you are asked: It costs money."
    assert lines[3] == "Arguments:" and "\u202e" not in message and "\\u202e" in lines[4]
    assert lines[5].endswith('sssEND"') and len(lines[5]) > 5000
    assert lines[-1] == "  p59: 59"


def test_a_call_too_long_to_show_is_not_asked_about(tmp_path: Path) -> None:
    decision = policy(tmp_path, '[[rules]]\naction = "ask"').decide(tool(), {})
    with pytest.raises(NotAllowed, match=r"too many to show"):
        question_params(tool(), {"a": "x" * 30_000}, decision)


# --- the log ---------------------------------------------------------------------------------------------------------


def options(**fields: Any) -> AuditOptions:
    return AuditOptions.model_validate(fields)


def test_values_are_kept_as_rules_say_and_secrets_never(home: Path) -> None:
    rules = [
        {"keep": "clear", "server": "weather", "arguments": ["city", "token", "note", "deep"]},
        {"keep": "hide", "arguments": "body"},
    ]
    log = AuditLog(home, options(rules=rules))
    key = "ghp_" + "a1B2" * 9
    given = {"city": "Oslo", "token": "t0ps3cret", "note": f"use {key} please", "body": "long", "days": 3,
             "deep": {"headers": {"Authorization": "Basic 123"}}}  # fmt: skip
    kept = log.arguments("weather", "forecast", given)
    assert kept["city"] == "Oslo"
    assert {kept[n] for n in ("token", "note", "body", "deep")} == {"[hidden]"}
    assert kept["days"].startswith("hmac:") and kept["days"] != "3"
    assert kept["days"] == AuditLog(home, options()).arguments("x", "y", {"n": 3})["n"], "equal values, equal hashes"
    other = home / "other"
    other.mkdir()
    assert AuditLog(other, options()).arguments("x", "y", {"n": 3})["n"] != kept["days"], "another key elsewhere"
    assert log.arguments("other", "forecast", {"city": "Oslo"})["city"].startswith("hmac:")
    if os.name == "posix":
        assert stat.S_IMODE((home / "audit.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "value",
    [
        "password: hunter2",
        "please use\nDB_PASSWORD = hunter2 for it",
        "Authorization: Bearer abc.def",
        "mysql --password hunter2 -e x",
        "login --api-key=abc",
        '{"password": "hunter2"}',
        '{"pass\\u0077ord": "hunter2"}',
        '[{"deep": {"api_key": ["abc"]}}]',
        'echo "{\\"token\\": \\"abc\\"}"',
        {"body": '{"client_secret": "x"}'},
        "https://example.com/?token=abc",
    ],
)
def test_secrets_inside_of_texts_are_hidden_even_where_a_rule_says_clear(home: Path, value: Any) -> None:
    log = AuditLog(home, options(rules=[{"keep": "clear"}]))
    assert log.arguments("s", "t", {"q": value})["q"] == "[hidden]"


@pytest.mark.parametrize(
    "value",
    ["Oslo", "a token of love", '{"city": "Oslo"}', "at 12:30: lunch", "x=1", "{not json", "passwords are bad"],
)
def test_what_is_no_secret_stays_readable_where_a_rule_says_clear(home: Path, value: Any) -> None:
    log = AuditLog(home, options(rules=[{"keep": "clear"}]))
    assert log.arguments("s", "t", {"q": value})["q"] == value


def test_long_texts_are_looked_through_in_one_go(home: Path) -> None:
    log = AuditLog(home, options(rules=[{"keep": "clear"}]))
    for text in ("a" * 300_000, "a." * 150_000, "--" * 150_000, "x " * 150_000, " " * 300_000, "\\" * 300_000):
        assert log.arguments("s", "t", {"q": text})["q"] != "[hidden]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_noticed_and_the_line_is_written_later(home: Path) -> None:
    log = AuditLog(home, options())
    log.path.symlink_to("/dev/full")
    log.check()
    log.write({"n": 1})
    for number in (2, 3):
        with pytest.raises(NotAllowed, match=r"cannot be written \(No space left"):
            log.check()
        log.write({"n": number})
    log.path.unlink()
    log.check()
    assert [entry["n"] for entry in read_log(log.path)] == [3, 2, 1]


def test_half_a_line_is_taken_back(home: Path) -> None:
    """A disk that becomes full within a line, played by a limit on the size of files."""
    script = f"""
import resource, signal
from pathlib import Path
from toolscout.server.policy.audit import AuditLog, read_log
from toolscout.server.policy.file import AuditOptions
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = AuditLog(Path({str(home)!r}), AuditOptions())
log.write({{"n": 1}})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 5, hard))
log.write({{"n": 2}})
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.write({{"n": 3}})
print([entry["n"] for entry in read_log(log.path)])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[3, 2, 1]\n"


def test_the_log_turns_over_and_loses_no_line_before_its_time(home: Path) -> None:
    log, again = (AuditLog(home, options(max_bytes=10_000, files=3)) for _ in range(2))

    def write(which: AuditLog, start: int) -> None:
        for number in range(start, start + 50):
            which.write({"n": number, "text": "x y" * 30})

    threads = [threading.Thread(target=write, args=(which, start)) for which, start in ((log, 0), (again, 50))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry["n"] for entry in read_log(log.path)) == list(range(100))
    assert (home / "audit.jsonl.1").exists() and log.path.stat().st_size <= 10_000
    for number in range(1000):
        log.write({"n": number, "text": "x y" * 30})
    assert sorted(p.name for p in home.glob("audit.jsonl*")) == [
        "audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock",
    ]  # fmt: skip
    assert next(read_log(log.path))["n"] == 999


def test_a_log_that_cannot_be_written_is_said_until_it_can(home: Path) -> None:
    (home / "log").touch()
    log = AuditLog(home, options(file="log/calls.jsonl"))
    with pytest.raises(NotAllowed, match="cannot be written"):
        log.check()
    (home / "log").unlink()
    log.check()
    assert log.path.exists()


def test_the_command_shows_the_log(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["audit"]) == 3
    assert "No audit log is kept here. Write [audit]" in capsys.readouterr().err
    (home / "policy.toml").write_text("[audit]\n")
    assert execute(["audit"]) == 0 and "No such call" in capsys.readouterr().err
    log = AuditLog(home, options())
    for number, (name, outcome) in enumerate([("a/x", "ok"), ("b/x", "policy_denied"), ("a/y", "ok")]):
        client = {"via": "stdio", "name": "agent 1"}
        log.write({"at": f"t{number}", "client": client, "tool_id": name, "outcome": outcome, "ms": 1.5})
    assert execute(["audit", "--json"]) == 0
    assert [e["at"] for e in json.loads(capsys.readouterr().out)] == ["t2", "t1", "t0"]
    assert execute(["audit", "a/*", "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "a/y" in shown and "a/x" not in shown and "stdio agent 1" in shown
    assert execute(["audit", "--outcome", "policy_denied", "--json"]) == 0
    assert [e["tool_id"] for e in json.loads(capsys.readouterr().out)] == ["b/x"]
    (home / "policy.toml").write_text("broken")
    assert execute(["audit"]) == 7


def test_what_a_server_adds_of_its_own_is_limited_too() -> None:
    result = {"content": [{"type": "text", "text": "hi"}], "_meta": {"x": "y" * 200}, "isError": False}
    kept, cut = within(result, 100)
    assert cut and "_meta" not in kept and kept["content"][0] == {"type": "text", "text": "hi"}
    assert "_meta (209 characters of JSON) was left out" in kept["content"][1]["text"]
    hidden = {"type": "text", "text": "hi", "_meta": {"x": "y" * 2_000}}
    kept, cut = within({"content": [hidden]}, 100)
    assert cut and "y" * 10 not in str(kept)
    small = {"content": [{"type": "text", "text": "hi", "annotations": {"priority": 1}}], "_meta": {"x": 1}}
    assert within(small, 100) == (small, False)


@pytest.mark.parametrize(
    ("policy", "never"),
    [
        ("", False),
        ('default = "deny"', True),
        ('[[rules]]\naction = "deny"\ntool = "x"', True),
        ('[[rules]]\naction = "deny"\ntool = "y"', False),
        ('[[rules]]\naction = "deny"\narguments = { a = "b" }', False),
        ('default = "deny"\n[[rules]]\naction = "allow"\narguments = { a = "b" }', False),
        ('default = "deny"\n[[rules]]\naction = "deny"\narguments = { a = "b" }', True),
        ('default = "deny"\n[[rules]]\naction = "ask"', False),
        ('[[rules]]\naction = "ask"\narguments = { a = "b" }\n[[rules]]\naction = "deny"', False),
        ('[[rules]]\naction = "deny"\neffect = "read_only"', False),
    ],
)
def test_which_tools_are_never_called(policy: str, never: bool, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy)
    assert read_policy(path).never(Tool(tool_id="s/x", server_id="s", name="x")) is never


def test_what_a_server_asks_is_told_to_be_its_own() -> None:
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Toolscout wants\x1b a token."}}
    link = {"method": "elicitation/create", "params": {"mode": "url", "message": "Log in", "url": "https://x.example"}}
    roots = {"method": "roots/list"}
    result = {"resultType": "input_required", "inputRequests": {"a": form, "b": link, "c": roots}}
    asked = named("tables", result)["inputRequests"]
    before = "The MCP server 'tables' asks this, not Toolscout:\n"
    assert asked["a"]["params"]["message"] == before + "Toolscout wants\\x1b a token."
    assert asked["b"]["params"] == {"mode": "url", "message": before + "Log in", "url": "https://x.example"}
    assert asked["c"] == roots and named("tables", {"content": []}) == {"content": []}
    with pytest.raises(UpstreamError, match="only Toolscout's own questions have"):
        named("tables", {**result, "inputRequests": {KEY: form}})
