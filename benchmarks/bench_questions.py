"""Speed of labels, annotation, measures and question values, on one core.

    python benchmarks/bench_questions.py

Times are CPU times; the plain way to value questions solves one assignment for every cell and possible answer.
"""

import random
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.value import Knowledge, frontier
from slim_rl.games.matching.reading.masking import mask
from slim_rl.games.matching.reading.reader import _read, read
from slim_rl.games.matching.state import GameState, MatchingSettings

SAYINGS = (
    "[message] What is {r} on {p}?",
    "[message] Hi! I have {v} for {r} on {p}. What do you have for {s} on {q}?",
    "[message] I have no score for {r} on {p}. {s} looks strong on {q}, though, so let's keep that in mind.",
    "[message] Who is your best for {p}? I only know that {r} and {s} are not great for it.",
    "[message] That works for me. How about {r} for {p} and {s} for {q}? Does that sound good?",
    "[message] {r} on {p}: {v}.",
    "[message] sounds good, i will send a proposal shortly",
)


def messages(rng: random.Random, state: GameState, count: int) -> list[str]:
    roster = state.roster
    return [
        rng.choice(SAYINGS).format(
            r=rng.choice(roster.reviewers),
            s=rng.choice(roster.first_names),
            p=rng.choice(roster.short_papers),
            q=rng.choice(roster.short_papers),
            v=rng.randrange(100),
        )
        for _ in range(count)
    ]


def dialogue(rng: random.Random, state: GameState, turns: int = 10) -> Dialogue:
    said = [
        Turn(text, i % 2, ("policy", "partner")[i % 2], {"kind": "message", "text": text[10:]})
        for i, text in enumerate(messages(rng, state, turns))
    ]
    ends = {"reward": 0.0, "stop_reason": StopReason.MAX_TURNS}
    return Dialogue("d", "g", 0, 0, state.to_dict(), {}, {}, turns=said, **ends)  # type: ignore[arg-type]


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Returns the best CPU time of a few tries."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def plain_values(state: GameState) -> np.ndarray:
    """Returns the value of each unknown score to seat 0, by trying every answer from 0 to 100."""
    known = np.array(state.mask1, dtype=bool)
    values = np.where(known, np.array(state.table), 50).astype(float)
    rows, columns = linear_sum_assignment(-values)
    now = values[rows, columns].sum()
    worth = np.zeros_like(values)
    for r, p in np.argwhere(~known):
        answered = values.copy()
        for x in range(101):
            answered[r, p] = x
            rows, columns = linear_sum_assignment(-answered)
            worth[r, p] += answered[rows, columns].sum() / 101
        worth[r, p] -= now
    return worth


def main() -> None:
    rng = random.Random(0)
    games = {n: list(generate_games(200, MatchingSettings(n=n), seed=1)) for n in (3, 8)}
    texts = list(dict.fromkeys(messages(rng, games[8][0], 20_000)))

    def label() -> None:
        _read.cache_clear()
        mask.cache_clear()
        for text in texts:
            read(text, games[8][0].roster)

    print(f"labels and pairs        {len(texts) / seconds(label):10,.0f} messages/s, none seen before")
    for n in (3, 8):
        played = [dialogue(rng, state) for state in games[n]]

        def fill(dialogues: list[Dialogue] = played) -> None:
            _read.cache_clear()
            mask.cache_clear()
            for each in dialogues:
                annotate(each)

        print(f"annotate, {n}x{n}           {seconds(fill) / len(played) * 1e3:10.2f} ms per dialogue of 10 messages")
        took = seconds(lambda dialogues=played: [measures(each) for each in dialogues])  # type: ignore[misc]
        print(f"measures, {n}x{n}           {took / len(played) * 1e6:10.0f} µs per dialogue")
        ours = seconds(lambda n=n: [Knowledge(state, 0).expected_value for state in games[n]]) / len(games[n])  # type: ignore[misc]
        plain = seconds(lambda n=n: [plain_values(state) for state in games[n][:5]], 1) / 5  # type: ignore[misc]
        print(
            f"value of every question, {n}x{n} {ours * 1e6:5.0f} µs per board; the plain way {plain / ours:,.0f} times that"
        )
        took = seconds(lambda n=n: frontier(games[n], [0] * len(games[n]), 2 * n, "greedy"))  # type: ignore[misc]
        print(f"frontier, {n}x{n}, k <= {2 * n:2}  {took / len(games[n]) * 1e6:10.0f} µs per game")


if __name__ == "__main__":
    main()
