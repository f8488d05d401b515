"""Actions are read strictly about meaning and leniently about form."""

from __future__ import annotations

import random
import unicodedata
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
PLAN = (1, 0, 2)  # Ava: Electra, Daniel: BLEU, Sofia: GloVe


def parse(text: str, must_respond: bool = False) -> Action | ActionError:
    return parse_action(text, THREE, must_respond)


def error(text: str, must_respond: bool = False) -> str:
    result = parse(text, must_respond)
    assert isinstance(result, ActionError), result
    return result.message


@pytest.mark.parametrize(
    "body",
    [
        "\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel",
        " Proposal:<br/>&emsp; - BLEU: Daniel Nguyen<br/>&emsp; - Electra: Ava Li<br/>&emsp; - GloVe: Sofia Patel",
        "Proposal:<BR>BLEU: Daniel<br >Electra: Ava<br/>GloVe: Sofia",
        "\n- Daniel: bleu\n* AVA: electra\n• Sofia: glove\n",
        "\n1. BLEU - Daniel\n2) Ava -> Electra\n3: GloVe → Sofia Patel",
        "\nBLEU = Nguyen\nElectra | Li\nGloVe — Patel",
        " BLEU: Daniel, Electra: Ava, GloVe: Sofia",
        " BLEU: Daniel; Ava: Electra; GloVe: Sofia",
        "\nBLEU: a Method for Automatic Evaluation of MT: Daniel Nguyen"
        "\nAva Li: Electra: Pre-training Text Encoders as Discriminators"
        "\nGloVe: Global Vectors for Word Representation -> Sofia Patel",
        "\n**BLEU**: Daniel\n`Electra`: Ava\n_GloVe_: Sofia",
        "\n| Paper | Reviewer |\n|---|---|\n| BLEU | Daniel Nguyen |\n| Electra | Ava Li |\n| GloVe | Sofia Patel |",
        "\nHere is my best guess\n\nBLEU: Daniel (score 90)\n\nElectra: Ava (50)\nGloVe: Sofia (unsure)\n",
        "\nDaniel gets BLEU\nAva takes Electra\nassign GloVe to Sofia",
        "\r\nBLEU: Daniel\r\nElectra: Ava\r\nGloVe: Sofia\r\n",
        "\nGloVe: Sofia\nElectra: Ava\nBLEU: Daniel",
    ],
)
def test_forms_of_one_proposal(body: str) -> None:
    result = parse("[propose]" + body)
    assert isinstance(result, Action), result
    assert (result.kind, result.assignment) == ("propose", PLAN)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("\nBLEU: Zed\nElectra: Ava\nGloVe: Sofia", "Zed"),
        ("\nBLEU: Ava Zhang\nElectra: Daniel\nGloVe: Sofia", "Zhang"),
        ("\nBLEU: Danial\nElectra: Ava\nGloVe: Sofia", "Danial"),
        ("\nBLEU: Noah Wilson\nElectra: Ava\nGloVe: Sofia", "Noah"),
        ("\nSWAG: Daniel\nElectra: Ava\nGloVe: Sofia", "SWAG"),
        ("\nFoo: Bar\nBLEU: Daniel\nElectra: Ava\nGloVe: Sofia", "Foo: Bar"),
        ("\nBLEU: not Daniel\nElectra: Ava\nGloVe: Sofia", "not"),
        ("\nBLEU: Daniel or Ava\nElectra: Ava\nGloVe: Sofia", "or"),
        ("\nBLEU: Daniel (or Ava)\nElectra: Ava\nGloVe: Sofia", "or"),
        ("\nBLEU: Daniel\nElectra: Daniel\nGloVe: Sofia", "Daniel Nguyen is named twice"),
        ("\nBLEU: Daniel\nBLEU: Ava\nGloVe: Sofia", "BLEU is named twice"),
        ("\nBLEU: Daniel\nElectra: Ava\nGloVe: Sofia\nGloVe: Sofia", "twice"),
        ("\nBLEU: Daniel\nElectra: Ava", "lacks GloVe"),
        ("\nBLEU: Daniel", "lacks Electra and GloVe"),
        ("", "lacks BLEU, Electra and GloVe"),
        ("\nBLEU\nElectra: Ava\nGloVe: Sofia", "BLEU has no reviewer"),
        ("\nDaniel\nElectra: Ava\nGloVe: Sofia", "Daniel Nguyen has no paper"),
        ("\nBLEU: Electra\nElectra: Ava\nGloVe: Sofia", "one paper with one reviewer"),
        ("\nBLEU, Electra: Daniel, Ava\nGloVe: Sofia", "one paper with one reviewer"),
    ],
)
def test_refused_proposals_say_why(body: str, says: str) -> None:
    assert says in error("[propose]" + body)


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
        if any(name.endswith("Ada") for name in roster.names(pair)) and any(
            name.endswith(" Ada") for name in names[:6]
        ):
            continue  # a word that may be a reviewer and a paper: in free text it names nobody
        asked, told = (
            unicodedata.normalize(written, text)
            for text in (f"What is {roster.pair(pair)}?", f"{roster.pair(pair)}: 62.")
        )
        assert read(asked, roster).asked == (pair,)
        assert read(told, roster).statements == ((pair, 62),)


def test_a_remark_in_brackets_is_no_part_of_a_plan() -> None:
    roster = Roster(("Ava Li", "Bo"), ("BLEU (2002)", "GLUE"))
    found = parse_action("[propose]\nBLEU (2002): Ava Li (best, 62)\nGLUE (hers): Bo", roster)
    assert isinstance(found, Action) and found.assignment == (0, 1)


def test_name_within_another_means_its_owner_in_a_plan() -> None:
    roster = Roster(("Noah Reed", "Bo"), ("Reed", "GLUE"))
    found = parse_action(format_proposal((0, 1), roster), roster)
    assert isinstance(found, Action) and found.assignment == (0, 1)


def test_ambiguous_names_are_asked_for_whole() -> None:
    roster = Roster(("Ava Li", "Ava Smith"), ("BLEU", "GLUE"))
    result = parse_action("[propose]\nBLEU: Ava\nGLUE: Smith", roster)
    assert isinstance(result, ActionError)
    assert "Ava Li or Ava Smith" in result.message
    whole = parse_action("[propose]\nBLEU: Ava Smith\nGLUE: Ava Li", roster)
    assert isinstance(whole, Action)
    assert whole.assignment == (1, 0)


@pytest.mark.parametrize(
    ("text", "kind", "body"),
    [
        ("[message] Hello there", "message", "Hello there"),
        ("  \n[MESSAGE]\nHello\nthere \n", "message", "Hello\nthere"),
        ("**[message]** Hello", "message", "Hello"),
        ("> [ message ] [1] is a reference", "message", "[1] is a reference"),
        ("[message] ?", "message", "?"),
    ],
)
def test_messages(text: str, kind: str, body: str) -> None:
    assert parse(text) == Action("message", body)
    assert kind == "message"


@pytest.mark.parametrize(
    ("text", "kind"), [("[accept]", "accept"), (" [Accept] fine!", "accept"), ("[reject]", "reject")]
)
def test_answers(text: str, kind: str) -> None:
    result = parse(text, must_respond=True)
    assert isinstance(result, Action)
    assert result.kind == kind


def test_a_rejection_may_say_why() -> None:
    assert parse("[reject] Ava is weak on BLEU.", must_respond=True) == Action("reject", "Ava is weak on BLEU.")


@pytest.mark.parametrize(
    ("text", "must_respond", "says"),
    [
        ("", False, "[message] or [propose]"),
        ("Hello", False, "[message] or [propose]"),
        ("Hello", True, "[accept] or [reject]"),
        ("Sure! [message] Hello", False, "Begin with a tag"),
        ("[proposal]\nBLEU: Ava", False, "[proposal] is no tag"),
        ("[meſſage] hi", False, "Begin with a tag"),
        ("[message] hi\n[propose]\nBLEU: Ava", False, "One action at a time"),
        ("[message] hi [message] again", False, "One action at a time"),
        ("[accept] [reject]", True, "One action at a time"),
        ("[message]", False, "empty"),
        ("[message]  \n ", False, "empty"),
        ("[accept]", False, "no proposal to accept"),
        ("[reject] no", False, "no proposal to reject"),
        ("[message] wait", True, "[accept] or [reject]"),
        ("[propose]\nBLEU: Daniel\nElectra: Ava\nGloVe: Sofia", True, "[accept] or [reject]"),
    ],
)
def test_refused_actions_say_why(text: str, must_respond: bool, says: str) -> None:
    assert says in error(text, must_respond)


@given(st.permutations(range(8)), st.randoms(use_true_random=False))
def test_a_formatted_proposal_reads_back(plan: list[int], rng: random.Random) -> None:
    text = format_proposal(plan, ROSTER)
    head, *lines = text.split("\n")
    assert head == "[propose]"
    assert lines[0].startswith("BLEU: ")
    rng.shuffle(lines)
    result = parse_action("\n".join((head, *lines)), ROSTER)
    assert isinstance(result, Action)
    assert result.assignment == tuple(plan)


_PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["[message]", "[propose]", "[accept]", "[reject]", "[", "]", "\n", "<br/>", "&emsp;", "&#0;", ":", "("]
    ),
    st.sampled_from([*ROSTER.reviewers, *ROSTER.papers, *ROSTER.short_papers, *ROSTER.first_names]),
)


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=40).map(" ".join)), st.booleans())
def test_no_text_raises(text: str, must_respond: bool) -> None:
    result = parse_action(text, ROSTER, must_respond)
    if isinstance(result, ActionError):
        assert result.message.endswith((".", "'."))
        assert "\n" not in result.message
    elif result.kind == "propose":
        assert sorted(result.assignment or ()) == list(range(8))


@given(st.lists(_PIECES, max_size=40).map(" ".join))
def test_no_proposal_text_raises(text: str) -> None:
    parse_action("[propose]\n" + text, ROSTER)
