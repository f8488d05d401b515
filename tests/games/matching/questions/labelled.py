"""Messages with the labels that people gave them, and how well the instrument agrees with them.

    python -m tests.games.matching.questions.labelled FILE...    F1 on files of labelled messages; without a file, on those below

A file, except that of human messages, has one JSON object a line: `text`, `previous` (the partner's message before it, or null), `labels`, and `pairs`, the
[reviewer, paper] names that it asks about.
"""

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slim_rl.games.matching.reading.acts import INFORMATION_SEEKING, KINDS
from slim_rl.games.matching.reading.reader import classify, pairs_asked
from slim_rl.games.matching.reading.reader import read as read_message
from slim_rl.games.matching.roster import Roster
from tests.paths import HUMAN

MODELS = Path(__file__).with_name("model_messages_dev.jsonl")  # in the manner of instruction-tuned models
HELD_OUT = Path(__file__).with_name("model_messages_test.jsonl")  # more of them, on which no rule was tried: keep it so
PEOPLE = HUMAN / "question_labels_dev.jsonl"
ROSTER = Roster.default()
GROUPS = {"seeking": INFORMATION_SEEKING, "any": frozenset(KINDS), **{label: frozenset({label}) for label in KINDS}}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A message, the partner's before it, and what it asks; `pairs` is None where they were not written down."""

    text: str
    previous: str | None
    labels: frozenset[str]
    pairs: frozenset[tuple[int, int]] | None = None


def read(path: Path) -> list[Labelled]:
    """The messages of a file."""
    return list(_people(path) if path.name == PEOPLE.name else _lines(path))


def _lines(path: Path) -> Iterator[Labelled]:
    for line in path.open(encoding="utf-8"):
        row = json.loads(line)
        named = ((ROSTER.reviewers.index(r), ROSTER.short_papers.index(p)) for r, p in row["pairs"])
        yield Labelled(row["text"], row["previous"], frozenset(row["labels"]), frozenset(named))


def _people(path: Path) -> Iterator[Labelled]:
    """The labels name messages of the recorded games beside them."""
    games = [json.loads(line) for line in path.with_name("optimization.jsonl").open(encoding="utf-8")]
    for line in path.open(encoding="utf-8"):
        row = json.loads(line)
        log = games[row["game"]]["action_log"]
        said = [act for act in log[: row["index"] + 1] if act["type"] == "message"]
        act = log[row["index"]]
        before = [other["message"]["data"] for other in said if other["player"] != act["player"]]
        yield Labelled(act["message"]["data"], before[-1] if before else None, frozenset(row["labels"]))


def f1(said: Sequence[bool], true: Sequence[bool]) -> float:
    """Of one yes-or-no label; NaN where it is neither said nor true."""
    hits = sum(a and b for a, b in zip(said, true, strict=True))
    return 2 * hits / (sum(said) + sum(true)) if any(said) or any(true) else float("nan")


def agreement(messages: Collection[Labelled]) -> dict[str, float]:
    """F1 of the rules' labels by the names of `GROUPS`; `counted`: of seeking information in the sense that is counted, of which the
    reply is not looked at; `pairs`: share of the messages about pairs whose pairs are all found and no others.
    """
    found = [classify(message.text, message.previous, ROSTER) for message in messages]
    out = {
        name: f1([bool(labels & group) for labels in found], [bool(message.labels & group) for message in messages])
        for name, group in GROUPS.items()
    }
    counted = [read_message(m.text, ROSTER, [m.previous] if m.previous else []).seeking for m in messages]
    out["counted"] = f1(counted, [bool(message.labels & INFORMATION_SEEKING) for message in messages])
    about = [message for message in messages if message.pairs]
    right = [set(pairs_asked(m.text, ROSTER, m.previous)) == m.pairs for m in about]
    return out | ({"pairs": sum(right) / len(right)} if right else {})


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or [path for path in (PEOPLE, MODELS, HELD_OUT) if path.exists()]
    for path in paths:
        rows = read(path)
        print(f"{path.name}, {len(rows)} messages:", ", ".join(f"{k} {v:.3f}" for k, v in agreement(rows).items()))


if __name__ == "__main__":
    main()
