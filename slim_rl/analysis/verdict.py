"""Verdict in three sentences, for terminal and report: whether it learned to ask, whether reward rose, and the evidence.

The verdict uses held-out games played both before and after training, paired by game. "Rose" and "fell" are used only if the 95%
interval excludes zero: over seeds and games if there are several runs, else over games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from slim_rl.analysis.rows import without_unmeasured
from slim_rl.dialogue.measures import MEASURES, annotated, measures
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import NOT_MEASURED, count, interval, known, p_value, plain
from slim_rl.statistics import paired_comparison

Change = Mapping[str, Any]


def verdict(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> list[str]:
    """Returns the three sentences from one run's annotated held-out dialogues."""
    first, last = frame(before), frame(after)
    return sentences(changed(first, last, "questions"), changed(first, last, "reward"))


def frame(dialogues: Sequence[Dialogue]) -> pd.DataFrame:
    """Returns one row per dialogue that did not fail: its measures, game_id and seat."""
    rows = [
        {
            "game_id": d.game_id,
            "seat": d.seat,
            "environment": d.environment,
            "annotated": annotated(d),
            **measures(d),
        }
        for d in dialogues
        if not d.failed
    ]
    names = ["game_id", "seat", "environment", "annotated", *MEASURES]
    return without_unmeasured(pd.DataFrame(rows, columns=None if rows else names)).drop(columns="environment")


def changed(before: pd.DataFrame, after: pd.DataFrame, measure: str) -> dict[str, Any]:
    """Returns the change of a measure on the games of both frames; keys as in `changes.change`."""
    one, two = (data.set_index("game_id")[measure].astype(float) for data in (before, after))
    test = paired_comparison(one, two, bounded=MEASURES[measure].bounded)
    return {"before": test.before, "after": test.after, **asdict(test.difference), "by_run": [test.difference.value]}


def sentences(questions: Change, reward: Change) -> list[str]:
    """Returns the three sentences from two rows of `changes.by_arm`."""
    if not known(reward["low"]) or (known(questions["after"]) and not known(questions["low"])):
        return ["Too few games to tell whether it learned to ask: fewer than two were played both before and after."]
    helped = direction(reward)
    changed_to = f"from {plain(reward['before'])} to {plain(reward['after'])} ({by_how_much(reward)})"
    if not known(questions["after"]):
        outcome = {1: "Reward rose", 0: "Reward did not clearly change:", -1: "Reward fell"}[helped]
        return [
            f"Questions are {NOT_MEASURED}: this game does not annotate them.",
            f"{outcome} {changed_to}.",
            _evidence(None, reward),
        ]
    asked = direction(questions)
    span = f"from {plain(questions['before'])} to {plain(questions['after'])} questions per game ({by_how_much(questions)})"
    learned = {
        1: f"It learned to ask: {span}.",
        0: f"It did not clearly learn to ask: {span}.",
        -1: f"It learned to ask less: {span}.",
    }[asked]
    outcome = {
        1: f"Reward rose{' with it' if asked > 0 else ''}, {changed_to}.",
        0: f"Reward did not clearly change: {changed_to}.",
        -1: f"Reward fell, {changed_to}.",
    }[helped]
    return [learned, outcome, _evidence(questions, reward)]


def direction(change: Change) -> int:
    """Returns 1 for a rise, -1 for a fall, 0 if the interval includes zero."""
    return 1 if change["low"] > 0 else -1 if change["high"] < 0 else 0


def by_how_much(change: Change, share: bool = False) -> str:
    """Returns, for example, '+0.76, 95% interval 0.68 to 0.85'; the change of a share is in percentage points."""
    value = plain(change["value"], share, signed=True)
    span = interval(change["low"], change["high"], share, signed=True)
    return f"{value}, 95% interval {span}" if known(change["low"]) else value


def _evidence(questions: Change | None, reward: Change) -> str:
    runs = len(reward["by_run"])
    seeds = f" by each of {runs} seeds" if runs > 1 else ""
    games = count(reward["clusters"] if questions is None else questions["clusters"], "held-out game")
    asked = "" if questions is None else f"{p_value(questions['p'])} for questions and "
    text = f"Evidence: {games}, each played before and after{seeds}; p of no change {asked}{p_value(reward['p'])} for reward"
    if runs < 2:
        return f"{text}; one run, so other seeds may differ."
    if questions is None:
        return f"{text}, over {reward['over']}; reward rose in {sum(value > 0 for value in reward['by_run'])} of {runs} runs."
    rose, gained = (sum(value > 0 for value in change["by_run"]) for change in (questions, reward))
    ahead = interval(questions.get("next_low"), questions.get("next_high"))
    return (
        f"{text}, over {questions['over']}; questions rose in {rose} of {runs} runs and reward in {gained}; predicted change of questions "
        f"for one more seed: {ahead}."
    )
