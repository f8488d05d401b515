"""`slim-rl lab bench`: the same deals for everybody."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.games.matching import MatchingEnv
from slim_rl.lab.bench.suites import CANARY, load_suites
from tests.commands.bench_setup import SUITE, bench, content, refused, run, suites, written
from tests.fakes.sglang_server import SGLangServer
from tests.paths import ROOT

__all__ = ["bench", "suites"]  # fixtures


MODEL = ROOT / "data" / "warmstart"


class NewWords(MatchingEnv):
    """The game once its rules are told in other words."""

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return super().get_prompt_prefix(seat) + " Good luck."


def versions(folder: Path, *overrides: str) -> list[str]:
    return [suite.version for suite in load_suites(folder, overrides=overrides)]


def test_deals_and_versions_are_the_same_whenever_they_are_made(suites: Path) -> None:
    once, again = load_suites(suites), load_suites(suites)
    assert [suite.name for suite in once] == ["tiny_free", "tiny_priced"]
    assert [suite.rows for suite in once] == [suite.rows for suite in again]
    assert versions(suites) == versions(suites) and len(set(versions(suites))) == 2
    assert [suite.price for suite in once] == [0.0, 0.02]
    free, priced = ([row.game_id for row in suite.rows] for suite in once)
    assert free == priced, "a price deals no other games"


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": "tests.commands.bench_setup.NewInstrument"},
        {"environment": f"{__name__}.NewWords"},
        {"data": {"num_eval": 6, "seed": 8}},
        {"data": {"num_eval": 5, "seed": 7}},
        {"seed": 1},
        {"partner": {"kind": "shy", "accept_fraction": 0, "args": {"max_pairs": 2}}},
        {"partner": {"kind": "mute", "accept_fraction": 0}},
        {"game": {**SUITE["game"], "max_turns": 22}},  # type: ignore[dict-item]
        {
            "arms": {
                name: {"train.reward": "price", "train.reward_args": {"price": price}}
                for name, price in (("free", 0.01), ("priced", 0.03))
            }
        },
    ],
    ids=["annotator version", "words", "deals", "number", "seed", "partner", "another partner", "rules", "price"],
)
def test_whatever_a_figure_depends_on_changes_the_version(tmp_path: Path, suites: Path, changes: Any) -> None:
    assert not set(versions(written(tmp_path / "changed", **changes))) & set(versions(suites))


def test_bench_accepts_policy_settings_only(suites: Path, capsys: Any) -> None:
    own = ["policy.temperature=0.5", "limits.turn_tokens=64", "game.rules=none"]
    assert versions(suites, *own) == versions(suites)
    said = refused(capsys, "lab", "bench", "solo", "--suites", suites, "--set", "game.n=4")
    assert "--set game.n=4 would change the suite" in said


def test_bench_suites_hold_canary_and_question_cost() -> None:
    found = {suite.name: suite for suite in load_suites()}
    boards = {f"matching_{n}x{n}_{arm}": n for n in (3, 5, 8) for arm in ("free", "priced")}
    sizes = {name: suite.config.game.n for name, suite in found.items()}
    assert boards.items() <= sizes.items()
    assert all(CANARY in path.read_text(encoding="utf-8") for path in (ROOT / "configs" / "bench").glob("*.yaml"))
    for name, suite in found.items():
        assert suite.price == (0.02 if name.endswith("priced") else 0.0)
        assert make_training_reward(suite.config).visible_price(suite.rows[0].game_id) == (suite.price or None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["solo", "--suite", "tini"], "no suite 'tini'. Choose from tiny_free, tiny_priced, tiny; did you mean tiny?"),
        (["./ideel"], "MODEL './ideel' is not a folder here"),
        (["solo", "--name", "a/b"], "--name a/b is not a file name"),
        (["solo", "--name", "..", "--dry-run"], "--name .. is not a file name"),
        (["solo", "--suites", "nowhere"], "nowhere has no suites"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(suites: Path, capsys: Any, words: list[str], sentence: str) -> None:
    assert sentence in refused(capsys, "lab", "bench", "--suites", suites, *words)


def test_a_suites_partner_must_be_scripted(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "suites", partner={"kind": "openai"})
    assert "partner.kind=openai is not scripted" in refused(capsys, "lab", "bench", "solo", "--suites", folder)


def test_a_game_without_scripted_policies_says_so(tmp_path: Path, suites: Path, capsys: Any) -> None:
    other = {"name": "treasure", "environment": "examples.treasure.Treasure", "partner": {"kind": "honest"}}
    (suites / "treasure.yaml").write_text(yaml.safe_dump({"slim_rl": {**other, "data": {"num_eval": 3}}}))
    assert "MODEL solo is not openai:MODEL, and Treasure has no scripted policies" in refused(
        capsys, "lab", "bench", "solo", "--suites", suites
    )


def test_bench_scripted_policy_writes_one_complete_file(bench: Any, capsys: Any) -> None:
    path = bench("ideal")
    shown = capsys.readouterr().out
    data = content(path)
    assert path.name == "ideal.json.gz" and data["canary"] == CANARY and data["model"] == "ideal"
    assert data["provenance"][0]["command"] and data["provenance"][0]["machine"]
    for name, suite in data["suites"].items():
        assert f"{name}, version {suite['version']}: 6 games, question cost {suite['price']:g}" in shown
        assert suite["games"] == len(suite["dialogues"]) == 6
        assert {"net_reward", "lost_by_number", "lost_by_stopping", "lost_by_choice", "lost_by_use"} <= suite[
            "scores"
        ].keys()
        for dialogue in suite["dialogues"]:
            assert dialogue["turns"][-1] == {"role": "partner", "text": "[accept]"} and 0 <= dialogue["reward"] <= 1
    assert len(re.findall(r"tiny free +−?\d\.\d+ ± \d\.\d{3}", shown)) == 2, "net reward and gap, with intervals"
    assert "gap: count" in shown and "gap: plan" in shown


def test_a_second_start_plays_only_what_is_missing(bench: Any, tmp_path: Path) -> None:
    first = content(bench("ideal"))
    logs = sorted((tmp_path / "bench" / "ideal").glob("*.jsonl"))
    kept = logs[0].read_bytes().splitlines(keepends=True)[:4]
    logs[0].write_bytes(b"".join(kept))
    whole = logs[1].read_bytes()
    second = content(bench("ideal"))
    assert logs[0].read_bytes().splitlines(keepends=True)[:4] == kept and logs[1].read_bytes() == whole
    assert len(list(read_log(logs[0]))) == 6 and second["suites"] == first["suites"]


def test_another_version_is_played_anew(bench: Any, suites: Path) -> None:
    before = content(bench("solo"))["suites"]["tiny_free"]
    written(suites, seed=1)
    after = content(bench("solo"))["suites"]["tiny_free"]
    assert before["version"] != after["version"] and len(after["dialogues"]) == 6


@pytest.mark.parametrize("limit", [None, "limits.turn_tokens=4", "limits.dialogue_tokens=30", "game.rules=none"])
def test_bench_served_model_dialogues_follow_the_rules(
    bench: Any, suites: Path, tmp_path: Path, speak: Any, limit: str | None
) -> None:
    with SGLangServer(speak, model="warmstart", context_length=4096) as server:
        served = ["--engine", "sglang", "--server", server.url, *(["--set", limit] if limit else [])]
        path = bench(MODEL, *served, "--suite", "tiny_free")
    ends = {dialogue["stop_reason"] for dialogue in content(path)["suites"]["tiny_free"]["dialogues"]}
    assert ends == {(limit or "agreed").removeprefix("limits.").partition("=")[0].replace("game.rules", "agreed")}
    run("lab", "leaderboard", path, "--suites", suites, "--output", tmp_path / "board")
    assert (pd.read_csv(tmp_path / "board" / "leaderboard.csv")["suite"] == "tiny_free").all()


def test_settings_of_another_kind_need_another_name(
    bench: Any, suites: Path, tmp_path: Path, speak: Any, capsys: Any
) -> None:
    with SGLangServer(speak, model="warmstart", context_length=4096) as server:
        served = [MODEL, "--engine", "sglang", "--server", server.url, "--suite", "tiny_free"]
        bench(*served)
        (log,) = (tmp_path / "bench" / "warmstart").glob("*.jsonl")
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:4]))
        again = ["--suites", suites, "--output", tmp_path / "bench", "--set", "policy.temperature=0.5"]
        assert "another --name" in refused(capsys, "lab", "bench", *served, *again)
        assert bench(*served, "--set", "policy.temperature=0.5", "--name", "cold").name == "cold.json.gz"


def test_bench_chat_model_prints_cost_and_keeps_cassette(
    bench: Any, suites: Path, endpoint: str, tmp_path: Path, capsys: Any
) -> None:
    model, cassette = "openai:gpt-4.1-2025-04-14", f"policy.openai.cassette={tmp_path}/answers.sqlite"
    run("lab", "bench", model, "--suites", suites, "--output", tmp_path / "bench", "--dry-run")
    assert re.search(r"gpt-4\.1-2025-04-14: 60 calls, about \$\d+\.\d\d", capsys.readouterr().out)
    assert not (tmp_path / "bench").exists()

    first = bench(model, "--set", f"policy.openai.base_url={endpoint}", "--set", cassette)
    said = content(first)["suites"]
    assert "60 calls, about $" in capsys.readouterr().out and endpoint not in json.dumps(said)
    replayed = ["--set", cassette, "--set", "policy.openai.cassette_mode=replay", "--name", "again"]
    again = bench(model, "--set", f"policy.openai.base_url={endpoint}", *replayed)
    for name, suite in content(again)["suites"].items():
        assert [(d["turns"], d["reward"]) for d in suite["dialogues"]] == [
            (d["turns"], d["reward"]) for d in said[name]["dialogues"]
        ]
