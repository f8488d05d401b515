"""Did it learn to ask, did it help, and how sure is that? One sentence each, the same in the terminal and in the report.

The answer rests on held-out games that were played both before and after training, paired game by game. "Rose" and "fell"
are used only where the 95% interval leaves zero out: over seeds and games where there are several runs, else over games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from slim_rl.dialogue.measures import MEASURES, measures
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import count, interval, known, p_value, plain
from slim_rl.statistics import paired_comparison

Change = Mapping[str, Any]


def verdict(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> list[str]:
    """The three sentences, from one run's annotated held-out dialogues."""
    first, last = frame(before), frame(after)
    return sentences(changed(first, last, "questions"), changed(first, last, "reward"))


def frame(dialogues: Sequence[Dialogue]) -> pd.DataFrame:
    """One row a dialogue that did not fail: its measures, game_id and seat."""
    rows = [{"game_id": d.game_id, "seat": d.seat, **measures(d)} for d in dialogues if not d.failed]
    return pd.DataFrame(rows, columns=None if rows else ["game_id", "seat", *MEASURES])


def changed(before: pd.DataFrame, after: pd.DataFrame, measure: str) -> dict[str, Any]:
    """How a measure changed on the games of both frames; keys as in `plays.change`."""
    one, two = (data.set_index("game_id")[measure].astype(float) for data in (before, after))
    test = paired_comparison(one, two, bounded=MEASURES[measure].bounded)
    return {"before": test.before, "after": test.after, **asdict(test.difference), "by_run": [test.difference.value]}


def sentences(questions: Change, reward: Change) -> list[str]:
    """The three sentences, from two rows of `plays.by_arm`."""
    if not known(questions["low"]) or not known(reward["low"]):
        return ["Whether it learned to ask cannot be judged: fewer than two games were played both before and after."]
    asked, helped = direction(questions), direction(reward)
    span = (
        f"from {plain(questions['before'])} to {plain(questions['after'])} questions a game ({by_how_much(questions)})"
    )
    learned = {
        1: f"It learned to ask: {span}.",
        0: f"It did not clearly learn to ask: {span}.",
        -1: f"It learned to ask less: {span}.",
    }[asked]
    span = f"from {plain(reward['before'])} to {plain(reward['after'])} ({by_how_much(reward)})"
    paid = {
        1: f"Reward rose {'with it' if asked > 0 else 'all the same'}, {span}.",
        0: f"Reward did not clearly change: {span}.",
        -1: f"Reward fell, {span}.",
    }[helped]
    return [learned, paid, _how_sure(questions, reward)]


def direction(change: Change) -> int:
    """1 if it rose, -1 if it fell, 0 if the interval does not tell."""
    return 1 if change["low"] > 0 else -1 if change["high"] < 0 else 0


def by_how_much(change: Change, share: bool = False) -> str:
    """'+0.76, 95% interval 0.68 to 0.85'; a share changes by points of per cent."""
    value = plain(change["value"], share, signed=True)
    span = interval(change["low"], change["high"], share, signed=True)
    return f"{value}, 95% interval {span}" if known(change["low"]) else value


def _how_sure(questions: Change, reward: Change) -> str:
    runs = len(questions["by_run"])
    seeds = f" by each of {runs} seeds" if runs > 1 else ""
    text = (
        f"How sure: {count(questions['clusters'], 'held-out game')}, each played before and after{seeds}; p of no change "
        f"{p_value(questions['p'])} for questions and {p_value(reward['p'])} for reward"
    )
    if runs < 2:
        return f"{text}; one run, which says nothing about another seed."
    rose, gained = (sum(value > 0 for value in change["by_run"]) for change in (questions, reward))
    ahead = interval(questions.get("next_low"), questions.get("next_high"))
    return (
        f"{text}, over {questions['over']}; questions rose in {rose} of {runs} runs and reward in {gained}; one more seed is expected "
        f"to change questions by {ahead}."
    )
