"""Data of the report's dialogue viewer: a sample of the dialogues.

Invariants:
    The sample is spread over arms, runs, phases, stop reasons and steps, and depends on the seed alone.
    It changes no number elsewhere in the report.
    Samples prefer the same games everywhere, so that a game can be read before and after training, and next to its group.
    Boards and prompts shared by dialogues are stored once, and the data stays below `MAX_BYTES`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from slim_rl.analysis.load import Log, read_dialogue
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import game_of
from slim_rl.errors import DataError
from slim_rl.measured import measured

STEP_STRATA = 10
MAX_BYTES = 60_000_000  # of JSON, which compression reduces to about a tenth

Decode = Callable[[int], str]


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


def newest(frame: pd.DataFrame, size: int) -> pd.DataFrame:
    """Returns the last `size` rows by step, newest first."""
    return frame.sort_values("step", kind="stable", na_position="first").tail(size).iloc[::-1]


def collect(
    log: Log,
    size: int,
    seed: int = 0,
    decode: Decode | None = None,
    max_bytes: int = MAX_BYTES,
    last: bool = False,
) -> dict[str, Any]:
    """Returns the viewer's data for `page/*.js`: dialogues, and the boards and prompt texts they refer to by index.

    Args:
        size: maximum number of dialogues.
        seed: seed of the sample.
        decode: function from a token id to text; None: the tokenizer in the policy's folder, or the ids themselves without it.
        max_bytes: maximum size of the data; further dialogues are left out.
        last: whether to take the newest dialogues instead of a sample.
    """
    pool = _Pool()
    views: dict[int, dict[str, Any]] = {}
    taken = 0
    chosen = newest(log.frame, size) if last else choose(log.frame, size, seed)
    for row in chosen.itertuples():
        try:
            view = _view(read_dialogue(log, row), row, pool, decode)
            taken += len(orjson.dumps(view))
        except (ValueError, DataError):  # the line cannot be displayed, or is gone
            continue
        if taken + pool.bytes > max_bytes:
            break
        views[row.Index] = view
    reading = chosen if last else chosen.sort_values(["arm", "run", "step", "phase", "game_id", "group"], kind="stable")
    shown = [views[index] for index in reading.index if index in views]
    first = 0 if last else _asking(shown)
    return {"dialogues": shown, "first": first, "boards": pool.boards, "texts": pool.texts}


def _asking(shown: Sequence[dict[str, Any]]) -> int:
    """Returns the index of the dialogue to open first: preferably one with questions, of the first arm, after training."""

    def rank(place: int) -> tuple[bool, bool, bool, int, int]:
        each = shown[place]
        first_arm = each["arm"] == shown[0]["arm"]
        return each["questions"] > 0, first_arm, each["phase"] != "train", each["step"] or 0, -place

    return max(range(len(shown)), key=rank, default=0)


def token_decoder(folder: Path) -> Decode:
    """Returns a decoder of token ids, from tokenizer.json of a model folder.

    Raises:
        DataError: the `tokenizers` library or the file is missing.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError("Showing tokens as text needs the tokenizers library. Run pip install tokenizers.") from error
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise DataError(
            f"--tokenizer {folder} has no tokenizer.json. Name the folder of the model whose tokens are in the log."
        )
    tokenizer = Tokenizer.from_file(str(path))
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))


@cache
def _policy_decoder(model: str) -> Decode | None:
    """Returns a decoder from the policy's model folder, or None if the folder is missing or unreadable."""
    try:
        return token_decoder(Path(model)) if model else None
    except DataError:
        return None


class _Pool:
    """Boards and texts, each stored once."""

    def __init__(self) -> None:
        self.boards: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.bytes = 0
        self._seen: dict[Any, Any] = {}

    def board(self, environment: str, state: Any, seat: int) -> int | None:
        """Returns the index of the game's board; None if it has no board."""
        key = (environment, seat, orjson.dumps(state, option=orjson.OPT_SORT_KEYS))
        if key not in self._seen:
            board = measured(game_of(environment)).viewer_board(state, seat)
            self._seen[key] = None if board is None else self._add(self.boards, board)
        return self._seen[key]

    def text(self, text: str) -> int:
        """Returns the index of a text."""
        if text not in self._seen:
            self._seen[text] = self._add(self.texts, text)
        return int(self._seen[text])

    def _add(self, items: list[Any], item: Any) -> int:
        self.bytes += len(orjson.dumps(item))
        items.append(item)
        return len(items) - 1


def _view(data: dict[str, Any], row: Any, pool: _Pool, decode: Decode | None) -> dict[str, Any]:
    dialogue = of_line(data)
    name = f"{row.arm}/{row.run}/{row.phase}/{row.step}/{dialogue.id}"
    sizes = {"prompt": dialogue.prompt_ids, "response": dialogue.response_ids}
    board = pool.board(row.environment, dialogue.game_state, dialogue.seat)
    return {
        "key": hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=6).hexdigest(),
        "arm": row.arm,
        "run": row.run,
        "phase": row.phase,
        "step": None if np.isnan(row.step) else int(row.step),
        "group": dialogue.group,
        "game": dialogue.game_id,
        "cluster": f"{zlib.crc32(row.cluster.encode('utf-8', 'replace')):08x}",
        "seat": dialogue.seat,
        "seed": dialogue.seed,
        "policy": row.policy,
        "partner": row.partner,
        "stop": row.stop_reason,
        "reward": dialogue.reward,
        "failure": dialogue.failure,
        "questions": int(np.nan_to_num(row.questions)),
        "kinds": list(
            dict.fromkeys(k for turn in dialogue.turns if turn.role == "policy" for k in turn.questions or ())
        ),
        "malformed": None if np.isnan(row.malformed) else int(row.malformed),
        "question_value": round(float(row.question_value), 4) if board is not None else None,
        "columns": dialogue.columns,
        "tokens": data.get("tokens") or {**{k: len(v) for k, v in sizes.items()}, "policy": sum(dialogue.loss_mask)},
        "board": board,
        "prompt": [[m.get("role", ""), pool.text(str(m.get("content", "")))] for m in dialogue.prompt],
        "turns": [_turn(turn) for turn in dialogue.turns],
        "pieces": list(_pieces(dialogue, decode)) or None,
    }


def _turn(turn: Turn) -> dict[str, Any]:
    action = turn.action or {}
    return {
        **{name: getattr(turn, name) for name in _SHOWN},
        "seconds": round(turn.seconds, 3),
        "kind": action.get("kind"),
        "assignment": action.get("assignment"),
        "questions": turn.questions or [],
        "pairs": turn.pairs or [],
        "informative": len(turn.informative or ()),
    }


_SHOWN = (
    "role",
    "text",
    "thought",
    "error",
    "observation",
    "span",
    "malformed",
    "answered",
    "question_value",
    "gain",
    "regret",
    "state_value",
)


def _pieces(dialogue: Dialogue, decode: Decode | None) -> Iterator[tuple[str, int, float]]:
    """Yields (text, loss mask, logprob) of each logged response token."""
    if dialogue.response_ids and decode is None:
        decode = _policy_decoder(str(dialogue.policy.get("model") or ""))
    for token, mask, logprob in zip(dialogue.response_ids, dialogue.loss_mask, dialogue.logprobs, strict=True):
        yield (decode(token) if decode else f"{token} "), mask, round(logprob, 3)
