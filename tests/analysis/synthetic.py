"""Dialogue logs as a training run would write them, made up in seconds: boards, questions, answers, plans and rewards
agree. And the row of a report on them.

What is simulated is known: how the number of questions grows with the step in each arm (`ASKS`), and that a plan is the
best one given what its author knows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from scipy.optimize import linear_sum_assignment

from slim_rl.analysis.held_out import by_arm
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import Dialogue, StopReason, Turn

REVIEWERS = ("Ava Li", "Daniel Nguyen", "Sofia Patel", "Andrei Petrov", "Morgan Reed", "Joseph Santos", "Ethan Smith")
REVIEWERS += ("Noah Wilson",)
PAPERS = ("BLEU", "Electra", "GloVe", "GLUE", "LLaMA", "RoBERTa", "QuAC", "SWAG")
ASKS = {  # arm -> (mean questions at the start, after training)
    "shy": (0.9, 3.2),
    "forthcoming": (0.8, 0.6),
    "mute": (0.8, 0.4),
    "shuffled_reward": (0.9, 0.9),
    "frozen_policy": (0.9, 0.9),
}
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!-- <script>"
PROMPT = "You and your partner match reviewers to papers. Each of you sees part of the scores. " * 12


def make_board(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """A game state in DialOp's form; a cell that neither seat sees holds 50."""
    masks = rng.random((2, n, n)) < 0.4
    table = np.where(masks.any(axis=0), rng.integers(0, 100, (n, n)), 50)
    rows, columns = linear_sum_assignment(-table)
    return {
        "table": table.tolist(),
        "mask1": masks[0].tolist(),
        "mask2": masks[1].tolist(),
        "scale1": round(float(rng.uniform(1, 10)), 3),
        "scale2": round(float(rng.uniform(1, 10)), 3),
        "best_assignment_reward": int(table[rows, columns].sum()),
    }


def make_dialogue(rng: np.random.Generator, board: dict[str, Any], asks: int, arm: str, **fields: Any) -> Dialogue:
    """One game: `asks` questions, the answers, the best plan that the policy then knows, the verdict."""
    table, mask1, mask2 = (np.array(board[key]) for key in ("table", "mask1", "mask2"))
    n = len(table)
    known = np.where(mask1, table, 50)
    turns: list[Turn] = []
    position = 0

    def policy(text: str, kind: str, **more: Any) -> Turn:
        nonlocal position
        length = len(text) // 4 + 3
        action = {"kind": kind, "text": text.partition("]")[2].strip(), **more}
        turn = Turn(text, 0, "policy", action, span=(position, position + length), seconds=round(rng.random(), 3))
        position += length
        turns.append(turn)
        return turn

    def partner(text: str, kind: str) -> None:
        nonlocal position
        position += len(text) // 4 + 8
        turns.append(Turn(text, 1, "partner", {"kind": kind, "text": text.partition("]")[2].strip()}))

    for _ in range(asks):
        if rng.random() < 0.15:
            policy("[message] What are your best matches overall?", "message")
            partner("[message] Hard to say in general. Ask me about someone.", "message")
            continue
        cells = np.argwhere(~mask1 & mask2 if rng.random() < 0.7 and (~mask1 & mask2).any() else ~mask1)
        r, p = cells[rng.integers(len(cells))].tolist()
        policy(f"[message] How good is {REVIEWERS[r]} for {PAPERS[p]}?", "message")
        if mask2[r, p] and arm != "mute":
            known[r, p] = table[r, p]
            partner(f"[message] I have {int(table[r, p] * board['scale2'])} for {REVIEWERS[r].split()[0]}.", "message")
        else:
            partner("[message] I cannot see that one.", "message")
    if arm == "forthcoming":
        known = table
    if rng.random() < 0.2:
        policy("[message] Does that plan sound good to you?", "message")
        partner("[message] Sure, go on.", "message")
    plan = linear_sum_assignment(-known)[1]
    score = int(table[np.arange(n), plan].sum())
    ends = ("agreed", "max_turns", "policy_errors", "turn_tokens", "partner_failed")
    reason = StopReason(ends[rng.choice(5, p=[0.9, 0.03, 0.03, 0.02, 0.02])])
    if reason is StopReason.AGREED:
        lines = [f"{PAPERS[p]}: {REVIEWERS[r]}" for p, r in sorted((int(p), r) for r, p in enumerate(plan))]
        policy("[propose]\n" + "\n".join(lines), "propose", assignment=plan.tolist())
        partner("[accept]", "accept")
    elif reason is StopReason.POLICY_ERRORS:
        for _ in range(3):
            turn = policy("[propose] everyone gets <b>BLEU</b></script><script>alert(1)</script>", "message")
            turn.action, turn.error = None, "No reviewer is named: write one line a paper, 'paper: reviewer'."
    reward = None if reason.is_failure else 0.0
    if reason is StopReason.AGREED:
        reward = score / board["best_assignment_reward"]
    dialogue = Dialogue(
        seat=0,
        seed=int(rng.integers(1 << 31)),
        game_state=board,
        policy={"model": "tiny", "temperature": 1.0},
        partner={"kind": arm if arm in ("forthcoming", "mute") else "shy"},
        arm=arm,
        prompt=[{"role": "system", "content": PROMPT}, {"role": "user", "content": "Your table: ..."}],
        turns=turns,
        reward=reward,
        stop_reason=reason,
        failure="The partner gave no reply in 3 tries." if reason.is_failure else None,
        seconds=round(float(rng.random() * 3), 3),
        prompt_ids=[0] * 300,
        response_ids=[0] * position,
        loss_mask=[int(any(t.span and t.span[0] <= i < t.span[1] for t in turns)) for i in range(position)],
        **fields,
    )
    annotate(dialogue)
    return dialogue


def make_runs(
    arms: tuple[str, ...] = ("shy", "mute"),
    seeds: int = 2,
    steps: int = 40,
    games_per_step: int = 4,
    group: int = 2,
    n: int = 4,
    eval_games: int = 6,
    seed: int = 0,
) -> Iterator[Dialogue]:
    """The dialogues of every run, in the order of training; `eval_games` held-out games before and after."""
    rng = np.random.default_rng(seed)
    boards = [make_board(rng, n) for _ in range(max(games_per_step, steps * games_per_step // 2))]
    held_out = [make_board(rng, n) for _ in range(eval_games)]
    for arm in arms:
        first, last = ASKS[arm]
        for k in range(seeds):
            run = f"{arm}-{k}"

            def play(step: int, phase: str, board: dict[str, Any], game: str, repeat: int) -> Dialogue:
                mean = first + (last - first) * step / max(1, steps)  # noqa: B023
                return make_dialogue(
                    rng,
                    board,
                    int(rng.poisson(mean)),
                    arm,  # noqa: B023
                    id=f"{run}-{phase}-{step}-{game}-{repeat}",  # noqa: B023
                    game_id=game,
                    run=run,  # noqa: B023
                    step=step,
                    phase=phase,
                    group=f"{step}-{game}",
                )

            for i, board in enumerate(held_out):
                yield play(0, "eval", board, f"eval-{i}", 0)
            for step in range(steps):
                for i in rng.choice(len(boards), games_per_step, replace=False):
                    for repeat in range(group):
                        yield play(step, "train", boards[i], f"train-{i}", repeat)
            for i, board in enumerate(held_out):
                yield play(steps, "eval", board, f"eval-{i}", 0)


def write_runs(log_dir: Path, **settings: Any) -> int:
    """Writes `make_runs` as <log_dir>/<run>/dialogues.jsonl; returns the number of lines."""
    lines = 0
    for dialogue in make_runs(**settings):
        path = log_dir / dialogue.run / "dialogues.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
        lines += 1
    return lines


def changed(games: Any, arm: str, measure: str, condition: str) -> dict[str, Any]:
    """The row of `held_out.by_arm` of one arm, measure and condition."""
    return next(row for row in by_arm(games, [measure]) if (row["condition"], row["arm"]) == (condition, arm))
