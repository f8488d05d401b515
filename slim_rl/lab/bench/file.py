"""Result file of the benchmark: one model's dialogues in the suites, as compressed JSON.

Invariant: a reader trusts no figure in the file. It replays each dialogue under the current rules, with the recorded policy's messages
and the suite's partner, and rejects the file unless messages, end and reward are as recorded.

Replay cannot detect dialogues of another policy, or invented ones that obey the rules. To check those, replay a hosted model's cassette, or
play the checkpoint again.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from slim_rl import __version__, provenance
from slim_rl.analysis.cells import measured_cells
from slim_rl.dialogue.held_out import SCOPE
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import MEASURES
from slim_rl.dialogue.record import Dialogue, DialogueOver, StopReason, Turn
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.errors import DataError
from slim_rl.files import write_atomically
from slim_rl.formats import count
from slim_rl.jsonl import without_bom
from slim_rl.lab.bench.suites import CANARY, Suite
from slim_rl.lab.gap_tables import gap_of_cells
from slim_rl.statistics import Estimate

FORMAT = 1
SUFFIX = ".json.gz"
MEASURED = ("reward", "questions", "agreed", "errors")  # in addition to the net reward and the gap
_SPENT = ("calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
_MOST_SPENT = 1e9  # maximum of any amount per dialogue; a larger one means a damaged file
_LIMITS = {StopReason.TURN_TOKENS, StopReason.DIALOGUE_TOKENS, StopReason.CONTEXT_LENGTH}
_CUT = "cut short ("  # prefix of the error of a truncated turn
_HIDDEN = ("base_url",)  # private parts of a policy's identity
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class SuiteScores:
    """Scores of a model in one suite: `numbers` by measure; `spent`, the API usage that the file states."""

    suite: Suite
    numbers: dict[str, Estimate]
    spent: dict[str, float]
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """Verified result file of a model."""

    path: Path
    model: str
    entries: list[provenance.Entry]
    scores: list[SuiteScores]


def scores(dialogues: Sequence[Dialogue], suite: Suite) -> dict[str, Estimate]:
    """Returns means with intervals over games: net reward, gap and its parts, and `MEASURED`."""
    cells = {"": dialogues}
    numbers = [
        *gap_of_cells(cells, suite.price, suite.askers),
        *measured_cells(cells, [MEASURES[name] for name in MEASURED]),
    ]
    return {number.measure.name: number.mean for number in numbers}


# -- writing -----------------------------------------------------------------------------------------------------------


def write(
    path: Path, model: str, played: Mapping[str, tuple[Suite, Sequence[Dialogue]]], entries: Sequence[Any]
) -> None:
    """Writes the file atomically; `entries` is the provenance of the logs."""
    suites = {name: _suite_data(suite, dialogues) for name, (suite, dialogues) in played.items()}
    data = {
        "canary": CANARY,
        "format": FORMAT,
        "slim_rl": __version__,
        "model": model,
        "provenance": list(entries),
        "suites": suites,
    }
    write_atomically(path, gzip.compress(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY), mtime=0))


def _suite_data(suite: Suite, dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    policies = {orjson.dumps(_identity(dialogue)): _identity(dialogue) for dialogue in dialogues}
    if len(policies) > 1:
        raise DataError(
            f"The logs of {suite.name} mix {len(policies)} policies under one name, for example with other settings. Choose another --name."
        )
    order = {row.name: number for number, row in enumerate(suite.rows)}
    completed = sorted((d for d in dialogues if not d.failed), key=lambda d: order[f"{d.game_id}/{d.seat}"])
    return {
        "version": suite.version,
        "price": suite.price,
        "games": len(suite.rows),
        "policy": next(iter(policies.values()), {}),
        "scores": {name: asdict(number) for name, number in scores(completed, suite).items()},
        "dialogues": [_dialogue_data(dialogue) for dialogue in completed],
    }


def _identity(dialogue: Dialogue) -> dict[str, Any]:
    return {key: value for key, value in dialogue.policy.items() if key not in _HIDDEN}


def _dialogue_data(dialogue: Dialogue) -> dict[str, Any]:
    spent = Counter[str]()
    for turn in dialogue.turns:
        if turn.role == "policy" and turn.usage:
            spent.update({name: turn.usage.get(name) or 0 for name in _SPENT})
    return {
        "game": f"{dialogue.game_id}/{dialogue.seat}",
        "reward": dialogue.reward,
        "stop_reason": dialogue.stop_reason.value if dialogue.stop_reason else None,
        "turns": [_turn_data(turn) for turn in dialogue.turns],
        **({"spent": dict(spent)} if spent else {}),
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    cut = (turn.error or "").startswith(_CUT)
    return {
        "role": turn.role,
        "text": turn.text,
        **({"cut": True} if cut else {}),
        **({"thought": turn.thought} if turn.thought else {}),
    }


# -- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path, suites: Sequence[Suite]) -> Result:
    """Reads a result file, and computes its scores from replayed dialogues.

    Raises:
        DataError: it is not a result file, its canary, versions or games are not the current ones, or a dialogue violates the
            rules.
    """
    data = _data(path)
    if data.get("canary") != CANARY:
        raise DataError(
            f"{path} does not hold the benchmark's canary, so it is not a result file. Make one with slim-rl lab bench."
        )
    if data.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {data.get('format')!r}, but this version reads {FORMAT}. Use the slim_rl that wrote it."
        )
    known = {suite.name: suite for suite in suites}
    results = []
    try:
        for name, recorded in data["suites"].items():
            if name not in known:
                raise DataError(
                    f"{path} has the suite {name}, which is not one of {', '.join(known)}. Name the folder of its suites with --suites."
                )
            results.append(_scored(path, known[name], recorded))
        about = [data["model"], data["provenance"], *(scored.policy for scored in results)]
        if wrong := next((text for text in _texts(about) if not text.isprintable()), None):
            raise ValueError(f"{wrong!r} has unprintable characters")
        entries = [entry for entry in data["provenance"] if isinstance(entry, dict)]
        return Result(path, str(data["model"]), entries, results)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is an incomplete result file ({error!r}). Make it again with slim-rl lab bench."
        ) from error


def _data(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        data = orjson.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else without_bom(content))
    except FileNotFoundError as error:
        raise DataError(f"{path} cannot be read ({error}). Name a file that slim-rl lab bench wrote.") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} is not JSON, compressed or plain ({error}). Name a file that slim-rl lab bench wrote."
        ) from error
    if not isinstance(data, dict):
        raise DataError(f"{path} is not a result file. Name a file that slim-rl lab bench wrote.")
    return data


def _scored(path: Path, suite: Suite, recorded: Mapping[str, Any]) -> SuiteScores:
    if recorded["version"] != suite.version:
        raise DataError(
            f"{path} has version {recorded['version']} of {suite.name}, but the current one is {suite.version}, and their figures cannot be "
            "compared. Play the suite again with slim-rl lab bench."
        )
    rows, entries = {row.name: row for row in suite.rows}, recorded["dialogues"]
    games = Counter(entry["game"] for entry in entries)
    if foreign := [name for name, times in games.items() if name not in rows or times > 1]:
        raise DataError(
            f"{path} has {count(len(foreign), 'game')}, such as {foreign[0]}, that {suite.name} does not have, or that are there twice. Play the "
            "suite again with slim-rl lab bench."
        )
    if missing := rows.keys() - games.keys():
        raise DataError(
            f"{path} lacks complete dialogues of {len(missing)} of the {count(len(rows), 'game')} of {suite.name}. Run the same slim-rl lab bench "
            "to play them."
        )
    worker = RolloutWorker(suite.config, None)
    again = asyncio.run(_replay(worker, [(rows[entry["game"]], entry) for entry in entries], f"{path}, {suite.name}"))
    spent = Counter[str]()
    for entry in entries:
        spent.update({name: _amount(value) for name, value in entry.get("spent", {}).items() if name in _SPENT})
    policy = recorded.get("policy", {})
    return SuiteScores(suite, scores(again, suite), dict(spent), policy if isinstance(policy, dict) else {})


def _amount(value: Any) -> float:
    """Returns an amount that the file states for one dialogue. Raises ValueError unless it is a plausible number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SPENT:
        raise ValueError(f"{value!r} is not an amount from 0 to {_MOST_SPENT:g}")
    return float(value)


def _texts(data: Any) -> Iterator[str]:
    """Yields all texts in JSON data, including keys."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list):
        for part in (*data, *data.values()) if isinstance(data, Mapping) else data:
            yield from _texts(part)


@dataclass
class _Recorded:
    """Policy that replays recorded turns in order, and then ends the dialogue as recorded."""

    entry: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.end = StopReason(self.entry["stop_reason"])
        self.left = [turn for turn in self.entry["turns"] if turn["role"] == "policy"]
        if not all(isinstance(turn["text"], str) for turn in self.entry["turns"]):
            raise ValueError("a turn without text")

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "recorded"}

    async def act(self, view: View) -> Turn:
        limited = self.end in _LIMITS
        if not self.left:
            raise DialogueOver(self.end if limited else StopReason.BROKEN, "the record ends before the game does")
        turn = self.left.pop(0)
        return Turn(turn["text"], cut=self.end if turn.get("cut") and limited else None)


async def _replay(
    worker: RolloutWorker, pairs: Sequence[tuple[GameRow, Mapping[str, Any]]], where: str
) -> list[Dialogue]:
    out = []
    for row, entry in pairs:
        (dialogue,) = await worker.play(worker.spec(row, SCOPE, phase="eval"), policy=_Recorded(entry))
        if wrong := _difference(dialogue, entry):
            raise DataError(
                f"{where}: the dialogue of game {row.name} violates the rules: {wrong}. Make the file again with slim-rl lab bench."
            )
        annotate(dialogue)
        out.append(dialogue)
    return out


def _difference(dialogue: Dialogue, entry: Mapping[str, Any]) -> str | None:
    """Returns how the record differs from the replay; None if it does not."""
    turns = [(turn["role"], turn["text"]) for turn in entry["turns"]]
    for number, (turn, recorded) in enumerate(zip(dialogue.turns, turns, strict=False), 1):
        if (turn.role, turn.text) != recorded:
            return f"turn {number} is {recorded[1][:80]!r} by the {recorded[0]}, but the replay has {turn.text[:80]!r} by the {turn.role}"
    if len(turns) != len(dialogue.turns):
        return f"it has {count(len(turns), 'turn')}, but the replay has {len(dialogue.turns)}"
    if dialogue.stop_reason != entry["stop_reason"]:
        return f"it ended with {entry['stop_reason']}, but the replay ended with {dialogue.stop_reason}"
    if dialogue.reward is None or entry["reward"] is None or abs(dialogue.reward - entry["reward"]) > _CLOSE:
        return f"its reward is {entry['reward']}, but the replay's is {dialogue.reward}"
    return None
