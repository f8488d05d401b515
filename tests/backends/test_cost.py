"""What a run is said to cost before it starts: counted call by call here, by formula there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl import bundled
from slim_rl.backends.checks import check_cost
from slim_rl.backends.cost import (
    LATER,
    NOW,
    REPLY_TOKENS,
    SYSTEM_TOKENS,
    TABLE_TOKENS,
    TURN_TOKENS,
    cost_report,
    estimate_cost,
    evaluation_dialogues,
    held_out_rows,
    in_words,
    usd_expected,
)
from slim_rl.config import Config, OpenAIConfig, load_config, parse_config
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from tests.fakes.openai_server import OpenAIServer
from tests.partners.openai_setup import Asks, partner_of, play, spend_elsewhere

STEPS, GAMES, GROUP, HELD_OUT = 25, 3, 4, 7


def config(tmp_path: Path, *overrides: str, backend: str = "slime") -> Config:
    data: dict[str, Any] = {
        "output_dir": str(tmp_path),
        "data": {"train": str(tmp_path / "games.jsonl"), "eval": str(tmp_path / "eval.jsonl"), "num_eval": HELD_OUT},
        "partner": {"kind": "openai", "openai": {"budget_usd": 5.0}},
        "train": {"backend": backend, "steps": STEPS, "games_per_step": GAMES, "group_size": GROUP, "save_every": 10},
    }
    return parse_config(data, overrides)


def simulated(turns: int, evaluations: int) -> tuple[int, float, float]:
    """(calls, US dollars, US dollars without a cache) of a run, one call after the other, at GPT-4.1's prices."""
    calls, usd, uncached = 0, 0.0, 0.0
    dialogues = sum(1 for _ in range(STEPS) for _ in range(GAMES) for _ in range(GROUP))
    dialogues += sum(1 for _ in range(evaluations) for _ in range(HELD_OUT))
    for _ in range(dialogues):
        before, request = SYSTEM_TOKENS, SYSTEM_TOKENS + TABLE_TOKENS
        for _ in range(turns):
            request += TURN_TOKENS  # what the policy says
            calls += 1
            uncached += request * 2e-6 + REPLY_TOKENS * 8e-6
            usd += (request - before) * 2e-6 + before * 0.5e-6 + REPLY_TOKENS * 8e-6
            before = request
            request += REPLY_TOKENS  # the partner's answer
    return calls, usd, uncached


# Before the first step and after the 10th and the 20th; TRL's before and after; verl's after the last step too.
@pytest.mark.parametrize(("backend", "evaluations"), [("slime", 3), ("trl", 2), ("verl", 4)])
@pytest.mark.parametrize("turns", [NOW, LATER])
def test_the_estimate_is_the_sum_over_all_calls(tmp_path: Path, backend: str, evaluations: int, turns: int) -> None:
    made = config(tmp_path, backend=backend)
    dialogues = made.train.steps * made.train.dialogues + evaluation_dialogues(made, eval_interval=10)
    calls, usd, uncached = simulated(turns, evaluations)
    estimate = estimate_cost(made.partner.openai, dialogues, turns)
    assert estimate["calls"] == calls == turns * dialogues
    assert estimate["usd"] == pytest.approx(usd)
    assert estimate["usd_uncached"] == pytest.approx(uncached)
    said = cost_report(made, eval_interval=10)
    assert said is not None
    assert f"{STEPS * GAMES * GROUP:,} dialogues in training and {evaluations * HELD_OUT:,} in evaluation" in said
    assert f"at {turns} partner turns" in said
    assert f"{calls:,} calls, ${usd:,.0f} (${uncached:,.0f} if nothing is cached)" in said
    assert "a budget of $5" in said


async def test_a_dialogue_makes_as_many_calls_as_the_partner_has_turns() -> None:
    async with OpenAIServer() as server:
        partner = partner_of(server)
        for seed, questions in enumerate((4, 9)):
            before = len(server.requests)
            dialogue = await play(partner, Asks(questions), seed=seed)
            assert len(server.requests) - before == sum(turn.role == "partner" for turn in dialogue.turns)
            assert len(server.requests) - before == estimate_cost(partner.config, 1, questions + 1)["calls"]


def test_the_games_that_are_there_count(tmp_path: Path) -> None:
    (tmp_path / "eval.jsonl").write_text("{}\n" * 4)
    assert evaluation_dialogues(config(tmp_path), eval_interval=10) == 3 * 4
    assert evaluation_dialogues(config(tmp_path), eval_interval=0) == 0
    assert evaluation_dialogues(config(tmp_path, "train.eval_games=3", backend="trl")) == 2 * 3
    assert evaluation_dialogues(config(tmp_path, "data.eval=null"), eval_interval=10) == 0


@pytest.mark.parametrize(
    ("backend", "every", "evaluations"),
    # before the first of 25 steps, after the 5th, 10th, 15th, 20th, and after the last, which is the 25th too
    [("trl", 5, 6), ("trl", 24, 3), ("trl", 25, 2), ("trl", 40, 2), ("verl", 5, 6), ("verl", 4, 8)],
)
def test_evaluations_during_training_count(tmp_path: Path, backend: str, every: int, evaluations: int) -> None:
    made = config(tmp_path, f"train.eval_every={every}", backend=backend)
    assert evaluation_dialogues(made) == evaluations * HELD_OUT
    assert f"and {evaluations * HELD_OUT:,} in evaluation" in (cost_report(made) or "")


def test_what_is_spent_and_what_has_no_price_is_said(tmp_path: Path) -> None:
    made = config(tmp_path)
    spend_elsewhere(made.run_dir, 1.25)
    assert (cost_report(made) or "").endswith("a budget of $5, of which $1.25 is spent")
    served = config(tmp_path, "partner.openai.model=Qwen/Qwen3-32B", "partner.openai.budget_usd=null")
    assert "Qwen/Qwen3-32B having no price" in (cost_report(served) or "") and usd_expected(served) is None
    assert cost_report(config(tmp_path, "partner.kind=shy")) is None
    assert cost_report(config(tmp_path, "partner.openai.cassette_mode=replay")) is None


def test_shipped_budgets_cover_their_own_estimates() -> None:
    paid = 0
    for name in bundled.names():
        shipped = load_config(name)
        for check in check_cost(shipped, eval_interval=10):
            paid += 1
            assert check.status == "pass", (name, check)
    assert paid, "at least one shipped config pays for its partner"


def test_doctor_budget_below_the_estimate_fails() -> None:
    statuses = {}
    for budget in (600, 725, 726, "null"):
        (check,) = check_cost(load_config("matching", [f"partner.openai.budget_usd={budget}"]), eval_interval=10)
        statuses[budget] = check.status
        assert (check.status == "fail") == ("budget_usd=726 or more" in check.fix)
    assert statuses == {600: "fail", 725: "fail", 726: "pass", "null": "warn"}


def test_the_number_of_calls_at_once_grows_with_the_batch(tmp_path: Path) -> None:
    sizes = {(2, 4): 64, (32, 8): 256, (256, 16): 1024}
    for (games, group), calls in sizes.items():
        batch = (f"train.games_per_step={games}", f"train.group_size={group}")
        assert config(tmp_path, *batch).partner_concurrency == calls
        assert config(tmp_path, *batch, "partner.openai.concurrency=10").partner_concurrency == 10
    assert json.loads(config(tmp_path).model_dump_json())["partner"]["openai"]["concurrency"] is None


def test_an_estimate_grows_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    one = estimate_cost(OpenAIConfig(), 1000, partner_turns=5)
    assert one["calls"] == 5000
    assert 0 < one["usd"] < one["usd_uncached"]
    assert estimate_cost(OpenAIConfig(), 2000, partner_turns=5)["usd"] == pytest.approx(2 * one["usd"])
    # By hand: five calls that read 2000, then 100 more each (60 heard and 40 said), and write 40.
    for name, tokens in {"SYSTEM": 1840, "TABLE": 100, "TURN": 60, "REPLY": 40}.items():
        monkeypatch.setattr(f"slim_rl.backends.cost.{name}_TOKENS", tokens)
    five = estimate_cost(OpenAIConfig(), 1, 5)
    assert five["input_tokens"] == 2000 + 2100 + 2200 + 2300 + 2400 and five["output_tokens"] == 200
    assert five["cached_tokens"] == 1840 + 2000 + 2100 + 2200 + 2300
    assert five["usd_uncached"] == pytest.approx(11000 * 2e-6 + 200 * 8e-6)


def test_no_price_no_estimate() -> None:
    estimate = estimate_cost(OpenAIConfig(model="qwen"), 10)
    assert estimate["usd"] is None and estimate["input_tokens"] > 0


class Own(MatchingChatPartner):
    """A chat partner that goes by its dotted path."""


def test_cost_of_custom_chat_partner_equals_openai(tmp_path: Path) -> None:
    named = config(tmp_path)
    own = named.changed(partner={"kind": f"{__name__}.Own"})
    assert cost_report(own) and cost_report(own) == cost_report(named)
    assert cost_report(named.changed(partner={"kind": "shy"})) is None


def test_a_game_from_either_seat_in_turn_is_one_row(tmp_path: Path) -> None:
    changes = [f"data.train={tmp_path}/train.jsonl", f"data.eval={tmp_path}/eval.jsonl", "data.seat=both"]
    config = load_config("matching_local", [*changes, "data.num_train=4", "data.num_eval=6"])
    assert held_out_rows(config) == 6
    ensure_games(config)
    assert held_out_rows(config) == 6


def test_an_estimate_in_words_groups_its_digits() -> None:
    assert in_words(estimate_cost(OpenAIConfig(), 1400)) == "7,000 calls, about $8.89"
    assert in_words(estimate_cost(OpenAIConfig(model="unheard-of"), 1, 1)) == "1 call, at an unknown price"
