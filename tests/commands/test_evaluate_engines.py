"""`slim-rl evaluate` with a chat model, and with checkpoints behind servers: one table, one log, the same measures."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import measures
from slim_rl.policies.engines import connect
from tests.commands.shell import run
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.sglang_server import SGLangServer
from tests.fakes.vllm_server import VLLMServer
from tests.paths import ROOT

MODEL = ROOT / "data" / "warmstart"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    data = {
        "name": "small",
        "game": {"n": 3, "scales": False},
        "data": {"train": f"{tmp_path}/train.jsonl", "eval": f"{tmp_path}/eval.jsonl", "num_train": 20, "num_eval": 20},
        "partner": {"kind": "shy", "args": {"accept_fraction": 0}},
    }
    path.write_text(json.dumps({"slim_rl": data}))
    load_rows(parse_config(data), "eval")
    return path


@pytest.mark.parametrize(("engine", "server"), [("sglang", SGLangServer), ("vllm", VLLMServer)])
def test_a_server_plays_as_many_games_at_once_as_it_is_told(
    config: Path, tmp_path: Path, speak: Any, engine: str, server: Any
) -> None:
    out = tmp_path / "out"
    with server(speak, model="warmstart", context_length=4096, delay=0.05) as running:
        words = ["evaluate", config, "--checkpoint", MODEL, "--engine", engine, "--server", f"{running.url}/v1"]
        modes = ("--mode", "free", "--mode", "forced:1")
        shown = run(*words, "--games", 20, *modes, "--concurrency", 7, "--output", out)
        assert running.busiest == 7
    free, forced = (list(read_log(out / f"warmstart_shy_{mode}.jsonl")) for mode in ("free", "forced1"))
    assert len(free) == len(forced) == 20
    assert {d.policy["engine"] for d in free} == {engine} and not any(d.failed for d in free)
    assert all(d.turns[0].questions == ["pair"] and sum(turn.role == "policy" for turn in d.turns) >= 2 for d in free)
    assert "warmstart shy forced1" in shown


def test_too_long_prompt_ends_only_its_game(config: Path, tmp_path: Path, speak: Any) -> None:
    with SGLangServer(speak, model="warmstart", context_length=60) as server:
        words = ["evaluate", config, "--checkpoint", MODEL, "--engine", "sglang", "--server", server.url]
        run(*words, "--games", 3, "--output", tmp_path / "out")
        assert not server.requests
    assert {d.stop_reason for d in read_log(tmp_path / "out")} == {"context_length"}


@pytest.mark.usefixtures("unprinted")
def test_a_chat_model_is_a_row_beside_a_checkpoint(config: Path, tmp_path: Path, speak: Any) -> None:
    """Its endpoint answers by the shy partner's rules, so as a policy it agrees to nothing."""
    out, chat = tmp_path / "out", ["--policy", "solo", "--policy", "openai:gpt-4.1-2025-04-14"]
    with SGLangServer(speak, model="elsewhere/warmstart") as server, OpenAIServer() as endpoint:
        engine = ["--set", f"policy.openai.base_url={endpoint.url}", "--engine", "sglang", "--server", server.url]
        shown = run("evaluate", config, *chat, "--checkpoint", MODEL, *engine, "--games", 6, "--output", out)
    assert "gpt-4.1-2025-04-14_shy_free: " in shown and "policy calls" in shown
    names = ("solo", "gpt-4.1-2025-04-14", "warmstart")
    assert {file.name for file in out.glob("*.jsonl")} == {f"{name}_shy_free.jsonl" for name in names}
    dialogues = list(read_log(out / "gpt-4.1-2025-04-14_shy_free.jsonl"))
    assert len(dialogues) == 6 and not any(d.failed or d.response_ids for d in dialogues)
    assert all(turn.questions is not None for d in dialogues for turn in d.turns)
    run("analyze", out, "--output-dir", tmp_path / "plots")
    report = (tmp_path / "plots" / "report.html").read_text()
    assert "gpt-4.1-2025-04-14" in report
    assert {d.step for d in dialogues} == {None} and "step 0" not in report  # a checkpoint's step is not known


def test_scripted_policies_are_floor_and_ceiling_of_one_table(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    named = [word for name in ("random", "solo", "ideal", "forced:2") for word in ("--policy", name)]
    shown = run("evaluate", config, *named, "--games", 20, "--output", out)
    assert "ideal shy free" in shown and "forced2 shy free" in shown
    played = {file.stem: list(read_log(file)) for file in out.glob("*.jsonl")}
    reward = {name.partition("_")[0]: sum(d.reward or 0 for d in dialogues) for name, dialogues in played.items()}
    assert reward["random"] < reward["solo"] < reward["forced2"] < reward["ideal"]
    assert {d.policy["kind"] for dialogues in played.values() for d in dialogues} == {"scripted"}
    rows = [{**measures(d), "cell": name} for name, dialogues in played.items() for d in dialogues]
    found = pd.DataFrame(rows).drop(columns="stop_reason").groupby("cell").mean().stack().dropna()
    assert found["ideal_shy_free", "reward"] == pytest.approx(reward["ideal"] / 20)
    assert found["ideal_shy_free", "question_rank"] > 0.7 and found["ideal_shy_free", "redundant"] == 0
    assert 0.4 < found["forced2_shy_free", "question_rank"] < 0.6 and ("solo_shy_free", "question_rank") not in found
    assert found["solo_shy_free", "unknown"] == found["ideal_shy_free", "unknown"] > 0
    run("evaluate", config, "--policy", "solo", "--mode", "forced:2", "--games", 20, "--output", out)
    forced = {d.policy["intervention"] for d in read_log(out / "solo_shy_forced2.jsonl")}
    assert forced <= {"forced:0", "forced:1", "forced:2"}


def test_a_dry_run_says_what_a_chat_model_would_cost(config: Path) -> None:
    said = run("evaluate", config, "--policy", "openai:gpt-4.1-mini", "--mode", "forbidden", "--dry-run")
    assert "gpt-4.1-mini_shy_forbidden: 20 games" in said and "calls of gpt-4.1-mini" in said and "$" in said


def test_a_server_says_what_it_serves(speak: Any) -> None:
    with SGLangServer(speak, model="warmstart", context_length=99) as server:
        found = connect(f"{server.url}/v1/")
        assert (found.url, found.model, found.context) == (server.url, "warmstart", 99)
    with SGLangServer(speak) as router:
        assert connect(router.url).model == ""
