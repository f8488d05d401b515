"""The dialogues that can be read in the report: which ones are chosen, and which parts of them are kept.

The invariant: the choice is spread over arms, runs, phases, stop reasons and steps, depends on the seed alone, and
never changes a number elsewhere in the report: there every dialogue is counted. The same games are chosen wherever there
is a choice, so that a game can be seen before and after training and next to its group. Boards and prompts are kept once,
however many dialogues share them, and the whole stays below a size.
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
MAX_BYTES = 60_000_000  # of JSON, some tenth of which is left when it is packed

Decode = Callable[[int], str]


def choose(frame: pd.DataFrame, size: int, seed: int = 0) -> pd.DataFrame:
    """At most `size` rows, the most wanted first.

    First comes one of every arm, run, phase and stop reason; then, of every arm, run and phase, as many as there is room for,
    spread over the steps, with stop reasons as they fall. Games come in one random order everywhere, each whole.
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
    """The last `size` rows that were played, the newest first."""
    return frame.sort_values("step", kind="stable", na_position="first").tail(size).iloc[::-1]


def collect(
    log: Log,
    size: int,
    seed: int = 0,
    decode: Decode | None = None,
    max_bytes: int = MAX_BYTES,
    last: bool = False,
) -> dict[str, Any]:
    """The viewer's data (read by `page/*.js`): dialogues, and the boards and prompt texts they refer to by index.

    Args:
        size: dialogues at most. Those that would take the data above `max_bytes` are left out.
        last: the newest dialogues, instead of some of all.
        decode: the text of one token id, for logs that hold tokens; without it that of the policy's own tokenizer, where the
            log names a folder that has it, else ids stand for themselves.
    """
    pool = _Pool()
    views: dict[int, dict[str, Any]] = {}
    taken = 0
    chosen = newest(log.frame, size) if last else choose(log.frame, size, seed)
    for row in chosen.itertuples():
        try:
            view = _view(read_dialogue(log, row), row, pool, decode)
            taken += len(orjson.dumps(view))
        except (ValueError, DataError):  # counted, but not of a form that can be shown, or gone since
            continue
        if taken + pool.bytes > max_bytes:
            break
        views[row.Index] = view
    reading = chosen if last else chosen.sort_values(["arm", "run", "step", "phase", "game_id", "group"], kind="stable")
    shown = [views[index] for index in reading.index if index in views]
    first = 0 if last else _asking(shown)
    return {"dialogues": shown, "first": first, "boards": pool.boards, "texts": pool.texts}


def _asking(shown: Sequence[dict[str, Any]]) -> int:
    """Returns the place of the dialogue that a reader sees first: one that asks, of the first arm, after training if there is one."""

    def rank(place: int) -> tuple[bool, bool, bool, int, int]:
        each = shown[place]
        of_first = each["arm"] == shown[0]["arm"]
        return each["questions"] > 0, of_first, each["phase"] != "train", each["step"] or 0, -place

    return max(range(len(shown)), key=rank, default=0)


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


@cache
def _own_decoder(model: str) -> Decode | None:
    """That of the policy's model folder, if it is here and can be read."""
    try:
        return token_decoder(Path(model)) if model else None
    except DataError:
        return None


class _Pool:
    """Boards and texts, each kept once."""

    def __init__(self) -> None:
        self.boards: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.bytes = 0
        self._seen: dict[Any, Any] = {}

    def board(self, environment: str, state: Any, seat: int) -> int | None:
        """The index of what the game shows of itself; None if it shows nothing."""
        key = (environment, seat, orjson.dumps(state, option=orjson.OPT_SORT_KEYS))
        if key not in self._seen:
            board = measured(game_of(environment)).viewer_board(state, seat)
            self._seen[key] = None if board is None else self._add(self.boards, board)
        return self._seen[key]

    def text(self, text: str) -> int:
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
    """(text, loss mask, logprob) of every response token, if the log holds them."""
    if dialogue.response_ids and decode is None:
        decode = _own_decoder(str(dialogue.policy.get("model") or ""))
    for token, mask, logprob in zip(dialogue.response_ids, dialogue.loss_mask, dialogue.logprobs, strict=True):
        yield (decode(token) if decode else f"{token} "), mask, round(logprob, 3)
