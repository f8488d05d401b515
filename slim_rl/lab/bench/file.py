"""The file of a benchmark's result: what one model did in the suites, every dialogue in words, as compressed JSON.

    a reader believes no figure in it: each dialogue is played again by today's rules, the recorded policy saying its words and the
    suite's partner answering, and must come out as it was recorded, in words, end and reward

What this cannot find is a dialogue that someone else had, or that was made up whole by the rules: for that a hosted model's answers are
replayed from its cassette, and a checkpoint plays again.
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
from slim_rl.lab.gap_tables import ledger_of_cells
from slim_rl.statistics import Estimate

FORMAT = 1
SUFFIX = ".json.gz"
MEASURED = ("reward", "questions", "agreed", "errors")  # beside the net reward and the ledger
_SPENT = ("calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
_MOST_SPENT = 1e9  # of anything in one dialogue: more is a damaged file
_LIMITS = {StopReason.TURN_TOKENS, StopReason.DIALOGUE_TOKENS, StopReason.CONTEXT_LENGTH}
_CUT = "cut short ("  # begins the error of a turn that a limit ended
_HIDDEN = ("base_url",)  # of a policy's identity: addresses are nobody's business
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class SuiteScores:
    """What a model did in one suite: `numbers` by the measure's name; `spent`: by its own account, on calls."""

    suite: Suite
    numbers: dict[str, Estimate]
    spent: dict[str, float]
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """A model's file, once every dialogue in it was played again."""

    path: Path
    model: str
    made: list[provenance.Entry]
    scores: list[SuiteScores]


def scores(dialogues: Sequence[Dialogue], suite: Suite) -> dict[str, Estimate]:
    """Means with their intervals over games: the net reward, the ledger of asking, and `MEASURED`."""
    cells = {"": dialogues}
    found = [
        *ledger_of_cells(cells, suite.price, suite.askers),
        *measured_cells(cells, [MEASURES[name] for name in MEASURED]),
    ]
    return {number.measure.name: number.mean for number in found}


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, model: str, played: Mapping[str, tuple[Suite, Sequence[Dialogue]]], made: Sequence[Any]) -> None:
    """Writes the file, whole or not at all. `made`: the provenance of the dialogues' logs."""
    suites = {name: _suite_data(suite, dialogues) for name, (suite, dialogues) in played.items()}
    data = {
        "canary": CANARY,
        "format": FORMAT,
        "slim_rl": __version__,
        "model": model,
        "provenance": list(made),
        "suites": suites,
    }
    write_atomically(path, gzip.compress(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY), mtime=0))


def _suite_data(suite: Suite, dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    policies = {orjson.dumps(_identity(dialogue)): _identity(dialogue) for dialogue in dialogues}
    if len(policies) > 1:
        raise DataError(
            f"The logs of {suite.name} hold dialogues of {len(policies)} policies of one name, such as by other settings: give this one "
            "another by --name."
        )
    order = {row.name: number for number, row in enumerate(suite.rows)}
    whole = sorted((d for d in dialogues if not d.failed), key=lambda d: order[f"{d.game_id}/{d.seat}"])
    return {
        "version": suite.version,
        "price": suite.price,
        "games": len(suite.rows),
        "policy": next(iter(policies.values()), {}),
        "scores": {name: asdict(number) for name, number in scores(whole, suite).items()},
        "dialogues": [_dialogue_data(dialogue) for dialogue in whole],
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
    """The file's figures, worked out anew from its dialogues.

    Raises:
        DataError: it is not such a file, its canary, a suite's version or its deals are not today's, or a dialogue does not follow from
            the rules.
    """
    data = _data(path)
    if data.get("canary") != CANARY:
        raise DataError(
            f"{path} does not hold the benchmark's canary, so it is not a result of this benchmark; make it with slim-rl lab bench."
        )
    if data.get("format") != FORMAT:
        raise DataError(
            f"{path} is of format {data.get('format')!r}, and this program reads {FORMAT}: use the slim_rl that wrote it."
        )
    known = {suite.name: suite for suite in suites}
    found = []
    try:
        for name, recorded in data["suites"].items():
            if name not in known:
                raise DataError(
                    f"{path} has the suite {name}, which is not one of {', '.join(known)}: name the folder of its suites."
                )
            found.append(_scored(path, known[name], recorded))
        about = [data["model"], data["provenance"], *(scored.policy for scored in found)]
        if wrong := next((text for text in _texts(about) if not text.isprintable()), None):
            raise ValueError(f"{wrong!r} has characters that are not printed")
        made = [entry for entry in data["provenance"] if isinstance(entry, dict)]
        return Result(path, str(data["model"]), made, found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path} lacks a part of a result ({error!r}): make it again by slim-rl lab bench.") from error


def _data(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        data = orjson.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else without_bom(content))
    except FileNotFoundError as error:
        raise DataError(f"{path} cannot be read ({error}): give a file that slim-rl lab bench wrote.") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} is not JSON, compressed or plain ({error}): give a file that slim-rl lab bench wrote."
        ) from error
    if not isinstance(data, dict):
        raise DataError(f"{path} is not a result: give a file that slim-rl lab bench wrote.")
    return data


def _scored(path: Path, suite: Suite, recorded: Mapping[str, Any]) -> SuiteScores:
    if recorded["version"] != suite.version:
        raise DataError(
            f"{path}: its {suite.name} is of version {recorded['version']}, and today's is {suite.version}; figures of two versions cannot "
            "be compared, so play it again by slim-rl lab bench."
        )
    rows, entries = {row.name: row for row in suite.rows}, recorded["dialogues"]
    dealt = Counter(entry["game"] for entry in entries)
    if foreign := [name for name, times in dealt.items() if name not in rows or times > 1]:
        raise DataError(
            f"{path}: its deals are not those of {suite.name}: {count(len(foreign), 'game')}, such as {foreign[0]}, are not in it, or are there "
            "twice; play it by slim-rl lab bench."
        )
    if missing := rows.keys() - dealt.keys():
        raise DataError(
            f"{path} has no whole dialogue of {len(missing)} of the {count(len(rows), 'game')} of {suite.name}; the same slim-rl lab bench plays them."
        )
    worker = RolloutWorker(suite.config, None)
    again = asyncio.run(_replay(worker, [(rows[entry["game"]], entry) for entry in entries], f"{path}, {suite.name}"))
    spent = Counter[str]()
    for entry in entries:
        spent.update({name: _amount(value) for name, value in entry.get("spent", {}).items() if name in _SPENT})
    policy = recorded.get("policy", {})
    return SuiteScores(suite, scores(again, suite), dict(spent), policy if isinstance(policy, dict) else {})


def _amount(value: Any) -> float:
    """Returns what one dialogue spent of a thing, its own account of which nothing checks but this. Raises ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SPENT:
        raise ValueError(f"{value!r} is no amount from 0 to {_MOST_SPENT:g}")
    return float(value)


def _texts(data: Any) -> Iterator[str]:
    """Yields every text in JSON, keys too."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list):
        for part in (*data, *data.values()) if isinstance(data, Mapping) else data:
            yield from _texts(part)


@dataclass
class _Recorded:
    """Says a recorded policy's turns again, in order; after them it ends the dialogue as the record says."""

    entry: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.end = StopReason(self.entry["stop_reason"])
        self.left = [turn for turn in self.entry["turns"] if turn["role"] == "policy"]
        if not all(isinstance(turn["text"], str) for turn in self.entry["turns"]):
            raise ValueError("a turn without words")

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
            raise DataError(f"{where}: the dialogue of game {row.name} does not follow from the rules: {wrong}.")
        annotate(dialogue)
        out.append(dialogue)
    return out


def _difference(dialogue: Dialogue, entry: Mapping[str, Any]) -> str | None:
    """How the record differs from what came out; None if it does not."""
    said = [(turn["role"], turn["text"]) for turn in entry["turns"]]
    for number, (turn, recorded) in enumerate(zip(dialogue.turns, said, strict=False), 1):
        if (turn.role, turn.text) != recorded:
            return f"turn {number} is {recorded[1][:80]!r} of the {recorded[0]}, and would be {turn.text[:80]!r} of the {turn.role}"
    if len(said) != len(dialogue.turns):
        return f"it has {count(len(said), 'turn')}, and would have {len(dialogue.turns)}"
    if dialogue.stop_reason != entry["stop_reason"]:
        return f"it ended as {entry['stop_reason']}, and would end as {dialogue.stop_reason}"
    if dialogue.reward is None or entry["reward"] is None or abs(dialogue.reward - entry["reward"]) > _CLOSE:
        return f"its reward is {entry['reward']}, and would be {dialogue.reward}"
    return None
