"""Dialogues to read on the report: a sample, game by game, before and after training.

Invariants:
    The sample is spread over arms, runs, phases, stop reasons and steps, and depends on the seed alone.
    It changes no number elsewhere in the report.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import game_of
from slim_rl.errors import DataError
from slim_rl.formats import count, known, plain, words
from slim_rl.measured import measured

STEP_STRATA = 10


@dataclass(frozen=True, slots=True)
class Shown:
    """Dialogue on the page: its name, row of the frame, and response tokens as (text, loss mask, logprob)."""

    title: str
    row: Any
    dialogue: Dialogue
    pieces: list[tuple[str, int, float]]


@dataclass(slots=True)
class Game:
    """Game on the page: its board (`Instrument.viewer_board`), the dialogues shown of it, and the pairs that they ask about."""

    board: dict[str, Any] | None
    dialogues: list[Shown] = field(default_factory=list)
    asked: set[tuple[Any, ...]] = field(default_factory=set)


def choose(frame: pd.DataFrame, size: int, seed: int = 0) -> pd.DataFrame:
    """Returns at most `size` rows, by priority.

    First one row per arm, run, phase and stop reason; then rows of every arm, run and phase in turn, spread over the steps. Games
    come in one random order everywhere, each with all of its dialogues.
    """
    runs = ["arm", "run", "phase"]
    steps = frame["step"].rank(method="dense", pct=True).fillna(0.0)
    order = np.random.default_rng(seed).permutation(len(frame["cluster"].cat.categories))
    drawn = frame.assign(
        tenth=np.ceil(steps * STEP_STRATA), game=order[frame["cluster"].cat.codes.to_numpy()]
    ).sort_values(["game", "step"], kind="stable")
    lap = drawn.groupby([*runs, "tenth"], observed=True).cumcount()
    lap[~drawn.duplicated([*runs, "stop_reason"])] = -1
    return drawn.loc[lap.sort_values(kind="stable").index[:size]].drop(columns=["tenth", "game"])


def collect(log: Log, size: int, seed: int = 0, tokenizer: Path | None = None) -> list[Game]:
    """Returns the games of at most `size` dialogues, first those played most often, and that ask most.

    Args:
        seed: seed of the sample.
        tokenizer: model folder, to show logged token ids as text; None: the policy's.

    Raises DataError if `tokenizer` has no tokenizer.json.
    """
    if tokenizer is not None and not (tokenizer / "tokenizer.json").is_file():
        raise DataError(f"--tokenizer {tokenizer} has no tokenizer.json. Name the folder of the log's model.")
    games: dict[tuple[str, int], Game] = {}
    for row in choose(log.frame, size, seed).sort_values(["step", "arm", "run"], kind="stable").itertuples():
        dialogue = of_line(read_dialogue(log, row))
        board = measured(game_of(dialogue.environment)).viewer_board(dialogue.game_state, dialogue.seat)
        game = games.setdefault((str(row.cluster), dialogue.seat), Game(board))
        game.dialogues.append(Shown(_title(row), row, dialogue, list(_pieces(dialogue, str(tokenizer or "")))))
        asking = [turn for turn in dialogue.turns if turn.role == "policy" and not turn.forced]
        game.asked |= {tuple(pair) for turn in asking for pair in turn.pairs or ()}
    return sorted(games.values(), key=_interest, reverse=True)


def _interest(game: Game) -> tuple[int, float]:
    held_out = [float(np.nan_to_num(shown.row.questions)) for shown in game.dialogues if shown.row.phase != "train"]
    return len(held_out), max(held_out, default=0.0)


def _title(row: Any) -> str:
    step = f" step {row.step:.0f}" if known(row.step) else ""
    questions = f", {count(int(row.questions), 'question')}" if known(row.questions) else ""
    questions += f" and {row.questions_forced:.0f} forced" if row.questions_forced > 0 else ""
    return f"{words(row.arm)}, {row.phase}{step}: reward {plain(row.reward)}{questions}, {words(row.stop_reason)}"


def notes(turn: Turn) -> Iterator[str]:
    """Yields what the log says of a turn."""
    if turn.forced:
        yield "forced"
    yield from turn.questions or ()
    if turn.answered is not None:
        yield "answered" if turn.answered else "not answered"
    if turn.informative:
        yield "informative"
    if turn.malformed:
        yield "malformed"
    for name in ("question_value", "gain", "regret", "state_value"):
        if (value := getattr(turn, name)) is not None:
            yield f"{words(name)} {plain(value)}"
    if turn.span:
        yield count(turn.span[1] - turn.span[0], "token")


def _pieces(dialogue: Dialogue, tokenizer: str) -> Iterator[tuple[str, int, float]]:
    """Yields (text, loss mask, logprob) of each logged response token; without its tokenizer its id is the text."""
    decode = _decoder(tokenizer or str(dialogue.policy.get("model") or "")) if dialogue.response_ids else str
    for token, mask, logprob in zip(dialogue.response_ids, dialogue.loss_mask, dialogue.logprobs, strict=True):
        yield decode(token), mask, round(logprob, 3)


@cache
def _decoder(folder: str) -> Callable[[int], str]:
    """Returns a decoder of token ids, from tokenizer.json of a model folder if it has one."""
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    except Exception:  # no library, no file, or not a tokenizer's: `tokenizers` raises nothing more specific
        return lambda token: f"{token} "
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))
