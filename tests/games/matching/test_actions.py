"""Actions are read strictly about meaning and leniently about form."""

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import Action, ActionError, format_proposal, parse_action
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()
THREE = Roster.default(3)
ROWS = [json.loads(line) for line in Path(__file__).with_name("actions.jsonl").open(encoding="utf-8")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"])
def test_action_is_read_as_its_line_says(row: dict[str, Any]) -> None:
    """A line has its `text`, whether a plan waits (`must_respond`), and a part of the `error`, or what the action is."""
    found = parse_action(row["text"], THREE, row.get("must_respond", False))
    if "error" in row:
        assert isinstance(found, ActionError) and row["error"] in found.message
    else:
        assert isinstance(found, Action) and found.kind == row["kind"]
        assert row.get("body", found.text) == found.text
        assert tuple(row.get("assignment", ())) == (found.assignment or ())


CALLED = ("Ada", "Béla", "Chloé", "Dmitri", "Élan", "Frida", "Gustav", "Hélène")
FURTHER = (
    "",
    " (2002)",
    " (draft, v2)",
    " [v1]",
    "-X",
    " O'Neill",
    " & Co",
    " 3",
    " 3.5",
    " #1",
    "/2",
    " von Ç",
    " Ada",
)
ACCENTS = st.sampled_from(["NFC", "NFD"])  # a letter and its accent as one character, or as two


@given(
    st.permutations(CALLED), st.lists(st.sampled_from(FURTHER), min_size=6), ACCENTS, ACCENTS, st.permutations(range(3))
)
def test_names_of_any_form_can_be_proposed_asked_about_and_told(
    called: list[str], further: list[str], listed: Any, written: Any, plan: list[int]
) -> None:
    names = [unicodedata.normalize(listed, name + more) for name, more in zip(called, further, strict=False)]
    try:
        roster = Roster(tuple(names[:3]), tuple(names[3:6]))
    except ConfigError:
        assume(False)
    proposal = parse_action(unicodedata.normalize(written, format_proposal(plan, roster)), roster)
    assert isinstance(proposal, Action) and proposal.assignment == tuple(plan)
    for pair in ((0, 1), (2, 0)):
        named = unicodedata.normalize(written, roster.pair(pair))
        if any(one.endswith("Ada") for one in roster.names(pair)) and any(each.endswith(" Ada") for each in names[:6]):
            continue  # a word that may be a reviewer and a paper: in free text it names nobody
        assert read(f"What is {named}?", roster).asked == (pair,)
        assert read(f"{named}: 62.", roster).statements == ((pair, 62),)


@given(st.permutations(range(8)), st.randoms(use_true_random=False))
def test_a_formatted_proposal_reads_back(plan: list[int], rng: random.Random) -> None:
    text = format_proposal(plan, ROSTER)
    head, *lines = text.split("\n")
    assert head == "[propose]" and lines[0].startswith("BLEU: ")
    rng.shuffle(lines)
    result = parse_action("\n".join((head, *lines)), ROSTER)
    assert isinstance(result, Action) and result.assignment == tuple(plan)


_TAGS = ["[message]", "[propose]", "[accept]", "[reject]", "[", "]", "\n", "<br/>", "&emsp;", "&#0;", ":", "("]
_NAMES = [*ROSTER.reviewers, *ROSTER.papers, *ROSTER.short_papers, *ROSTER.first_names]
_PIECES = st.lists(st.text(max_size=8) | st.sampled_from(_TAGS) | st.sampled_from(_NAMES), max_size=40).map(" ".join)


@given(st.text() | _PIECES | _PIECES.map("[propose]\n{}".format), st.booleans())
def test_no_text_raises(text: str, must_respond: bool) -> None:
    result = parse_action(text, ROSTER, must_respond)
    if isinstance(result, ActionError):
        assert result.message.endswith((".", "'.")) and "\n" not in result.message
    elif result.kind == "propose":
        assert sorted(result.assignment or ()) == list(range(8))
