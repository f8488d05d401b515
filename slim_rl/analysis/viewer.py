"""The dialogues that the report lets one read: which ones, and what of them.

The invariant: the choice is spread over arms, runs, phases, stop reasons and steps, depends on the seed alone, and
never changes a number elsewhere in the report: there every dialogue is counted. Boards and prompts are kept once,
however many dialogues share them, and the whole stays below a size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from slim_rl.analysis.load import Log, annotated, read_dialogue
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.errors import DataError, SlimError
from slim_rl.games.matching.instance import GameState

STEP_STRATA = 10
MAX_BYTES = 12_000_000

Decode = Callable[[int], str]


def choose(frame: pd.DataFrame, size: int, seed: int = 0) -> pd.DataFrame:
    """At most `size` rows, in reading order.

    First comes one of every arm, run, phase and stop reason; then, of every arm, run and phase, as many as there is room for,
    spread over the steps, with stop reasons as they fall.
    """
    runs = ["arm", "run", "phase"]
    steps = frame["step"].rank(method="dense", pct=True).fillna(0.0)
    shuffled = frame.assign(tenth=np.ceil(steps * STEP_STRATA)).sample(frac=1.0, random_state=seed)
    lap = shuffled.groupby([*runs, "tenth"], observed=True).cumcount()
    lap[~shuffled.duplicated([*runs, "stop_reason"])] = -1
    chosen = shuffled.loc[lap.sort_values(kind="stable").index[:size]]
    return chosen.sort_values(["arm", "run", "step", "phase", "game_id"], kind="stable").drop(columns="tenth")


def collect(
    log: Log, size: int, seed: int = 0, decode: Decode | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """The viewer's data (see report.js): dialogues, and the boards and prompt texts they refer to by index.

    Args:
        size: dialogues at most. Those that would take the data above `max_bytes` are left out.
        decode: the text of one token id, for logs that hold tokens; without it ids stand for themselves.
    """
    pool = _Pool()
    views: list[dict[str, Any]] = []
    taken = 0
    for row in choose(log.frame, size, seed).itertuples():
        view = _view(read_dialogue(log, row), row, pool, decode)
        taken += len(orjson.dumps(view))
        if taken + pool.bytes > max_bytes:
            break
        views.append(view)
    return {"dialogues": views, "boards": pool.boards, "texts": pool.texts}


def token_decoder(folder: Path) -> Decode:
    """Texts of token ids by the tokenizer of a model folder (its tokenizer.json).

    Raises:
        DataError: the `tokenizers` library or the file is missing.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError("Showing tokens as text needs the tokenizers library: pip install tokenizers.") from error
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise DataError(f"There is no {path}; give the folder of the model whose tokens are in the log.")
    tokenizer = Tokenizer.from_file(str(path))
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))


class _Pool:
    """Boards and texts, each kept once."""

    def __init__(self) -> None:
        self.boards: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.bytes = 0
        self._seen: dict[Any, int] = {}

    def board(self, state: dict[str, Any]) -> int | None:
        key = orjson.dumps(state, option=orjson.OPT_SORT_KEYS)
        if key not in self._seen:
            try:
                game = GameState.from_dict(state)
            except SlimError:  # another game, which has no table
                return None
            self._seen[key] = self._add(self.boards, _board(game))
        return self._seen[key]

    def text(self, text: str) -> int:
        if text not in self._seen:
            self._seen[text] = self._add(self.texts, text)
        return self._seen[text]

    def _add(self, items: list[Any], item: Any) -> int:
        self.bytes += len(orjson.dumps(item))
        items.append(item)
        return len(items) - 1


def _board(game: GameState) -> dict[str, Any]:
    return {
        "reviewers": game.roster.reviewers,
        "papers": game.roster.papers,
        "truth": game.table,
        "shown": [game.displayed(0), game.displayed(1)],
        "scales": [game.scale1, game.scale2],
        "best": game.best(),
        "score": game.best_assignment_reward,
    }


def _view(data: dict[str, Any], row: Any, pool: _Pool, decode: Decode | None) -> dict[str, Any]:
    dialogue = annotated(data)
    name = f"{row.arm}/{row.run}/{row.phase}/{row.step}/{dialogue.id}"
    sizes = {"prompt": dialogue.prompt_ids, "response": dialogue.response_ids}
    board = pool.board(dialogue.game_state)
    informative = _informative(dialogue)
    return {
        "key": f"{zlib.crc32(name.encode()):08x}",
        "arm": row.arm,
        "run": row.run,
        "phase": row.phase,
        "step": None if np.isnan(row.step) else int(row.step),
        "game": dialogue.game_id,
        "seat": dialogue.seat,
        "seed": dialogue.seed,
        "policy": row.policy,
        "partner": row.partner,
        "stop": row.stop_reason,
        "reward": dialogue.reward,
        "failure": dialogue.failure,
        "asked": int(row.seeking),
        "value": round(float(row.value), 4) if board is not None else None,
        "tokens": data.get("tokens") or {**{k: len(v) for k, v in sizes.items()}, "policy": sum(dialogue.loss_mask)},
        "board": board,
        "prompt": [[m.get("role", ""), pool.text(str(m.get("content", "")))] for m in dialogue.prompt],
        "turns": [_turn(turn, new) for turn, new in zip(dialogue.turns, informative, strict=True)],
        "pieces": list(_pieces(dialogue, decode)) or None,
    }


def _turn(turn: Turn, informative: int) -> dict[str, Any]:
    action = turn.action or {}
    return {
        "role": turn.role,
        "text": turn.text,
        "thought": turn.thought,
        "kind": action.get("kind"),
        "assignment": action.get("assignment"),
        "error": turn.error,
        "span": turn.span,
        "seconds": turn.seconds,
        "questions": turn.questions or [],
        "pairs": turn.pairs or [],
        "informative": informative,
        "answered": turn.answered,
        "value": turn.value,
        "gain": turn.gain,
        "regret": turn.regret,
    }


def _informative(dialogue: Dialogue) -> list[int]:
    """For each turn, how many pairs it asks about that are informative, in the sense of `questions.measures`."""
    counts = []
    known: set[tuple[int, int]] = set()
    own, theirs = (dialogue.game_state.get(f"mask{seat + 1}") or [] for seat in (dialogue.seat, 1 - dialogue.seat))
    for turn in dialogue.turns:
        new = set(turn.pairs or ()) - known if turn.role == "policy" and theirs else set()
        counts.append(sum(bool(theirs[r][p]) and not own[r][p] for r, p in new))
        known |= new | set(turn.told or () if turn.role != "policy" else ())
    return counts


def _pieces(dialogue: Dialogue, decode: Decode | None) -> Iterator[tuple[str, int, float]]:
    """(text, loss mask, logprob) of every response token, if the log holds them."""
    for token, mask, logprob in zip(dialogue.response_ids, dialogue.loss_mask, dialogue.logprobs, strict=True):
        yield (decode(token) if decode else f"{token} "), mask, round(logprob, 3)
