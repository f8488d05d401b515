"""Verdict in three sentences, for terminal and report: whether it learned to ask, whether reward rose, and the evidence.

The verdict uses held-out games played both before and after training, paired by game. "Rose" and "fell" are used only if the 95%
interval excludes zero, and the printed p is of the same test: over seeds and games if there are several runs, else over games.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slim_rl.formats import NOT_MEASURED, count, interval, known, p_value, plain, words
from slim_rl.statistics import LEVEL

Change = Mapping[str, Any]
TOO_FEW = "Too few games to tell whether it learned to ask: fewer than two were played both before and after."


def verdicts(rows: Sequence[Change]) -> Iterator[dict[str, Any]]:
    """Yields the verdict (`sentences`) per arm and condition of `held_out.by_arm` that was played before and after training."""
    by_key = {(row["arm"], row["condition"], row["measure"]): row for row in rows}
    for (arm, condition, measure), reward in by_key.items():
        if measure == "reward" and reward["by_run"] and (arm, condition, "questions") in by_key:
            text = sentences(by_key[arm, condition, "questions"], reward)
            yield {"arm": arm, "condition": condition, "sentences": text}


def sentences(questions: Change, reward: Change) -> list[str]:
    """Returns the three sentences from two rows of `held_out.by_arm`."""
    if not known(reward["low"]) or (known(questions["after"]) and not known(questions["low"])):
        return [TOO_FEW]
    asked, helped = direction(questions), direction(reward)
    how = f"from {plain(reward['before'])} to {plain(reward['after'])} ({by_how_much(reward)})"
    lead = {1: "Reward rose", 0: "Reward did not clearly change:", -1: "Reward fell"}[helped]
    if not known(questions["after"]):
        unmeasured = f"Questions are {NOT_MEASURED}: this game does not annotate them."
        return [unmeasured, f"{lead} {how}.", _evidence(None, reward)]
    with_it = " with it" if asked > 0 and helped > 0 else ""
    outcome = f"{lead}{with_it}{',' if helped else ''} {how}."
    learned = {1: "It learned to ask", 0: "It did not clearly learn to ask", -1: "It learned to ask less"}[asked]
    span = f"from {plain(questions['before'])} to {plain(questions['after'])} questions per game"
    return [f"{learned}: {span} ({by_how_much(questions)}).", outcome, _evidence(questions, reward)]


def direction(change: Change) -> int:
    """Returns 1 for a rise, -1 for a fall, 0 if the interval includes zero or the test shows nothing."""
    if known(change["p"]) and change["p"] >= 1 - LEVEL:
        return 0
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


def on_pair(pair: Mapping[str, Any]) -> str:
    """Returns a sentence on a row of `held_out.compare`.

    Example: 'On the same 200 games, b free minus a free: questions per game +0.81 (0.64 to 0.97), reward ...'.
    """
    parts = [
        f"{what} {plain(row['value'], signed=True)} ({interval(row['low'], row['high'])})"
        for name, what in (("questions", "questions per game"), ("reward", "reward"))
        if known((row := pair["measures"][name])["low"])
    ]
    cells = f"{words(pair['second'])} minus {words(pair['first'])}"
    result = (
        f"{', '.join(parts)}, 95% intervals over {pair['measures']['reward']['over']}" if parts else "too few games"
    )
    return f"On the same {count(pair['games'], 'game')}, {cells}: {result}."
