"""A shy partner that answers with a chance: what it answers is settled once a dialogue and pair, and it never lies."""

from __future__ import annotations

import itertools

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.players import make_partner
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.scripted import SILENT, ShyPartner
from tests.games.matching.partners.test_scripted import SMALL, Match, names

PAIRS = list(itertools.product(range(3), range(3)))
TRUE = {
    pair: ShyPartner.score(ShyPartner(), pair, None, Match(ShyPartner()).env.get_private_view(1))  # type: ignore[arg-type]
    for pair in PAIRS
}


def answered(chance: float, seed: int) -> set[tuple[int, int]]:
    """The pairs that a partner answers for in one dialogue; whatever else it says must say nothing."""
    match = Match(ShyPartner(answers=chance), seed=seed, max_turns=100)
    found = set()
    for pair in PAIRS:
        reply = (match.say(f"[message] What is {names(SMALL, pair)}?") or "").removeprefix("[message] ")
        assert reply in (TRUE[pair], *SILENT)
        if reply == TRUE[pair]:
            found.add(pair)
    return found


@pytest.mark.parametrize("chance", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_it_answers_in_as_many_cases_as_it_should(chance: float) -> None:
    share = sum(len(answered(chance, seed)) for seed in range(100)) / (100 * len(PAIRS))
    assert share == pytest.approx(chance, abs=0.05 if 0 < chance < 1 else 0)


def test_dose_repeated_questions_do_not_help() -> None:
    for seed in range(20):
        match = Match(ShyPartner(answers=0.5), seed=seed, max_turns=100)
        for pair in PAIRS:
            question = f"[message] What is {names(SMALL, pair)}?"
            tries = {TRUE[pair] in (match.say(question) or "") for _ in range(3)}
            assert len(tries) == 1
        assert answered(0.25, seed) <= answered(0.5, seed) <= answered(0.75, seed)


def test_of_two_pairs_it_may_answer_one() -> None:
    replies = [
        Match(ShyPartner(answers=0.5), seed=seed).say(
            f"[message] What are {names(SMALL, (0, 0))} and {names(SMALL, (1, 1))}?"
        )
        for seed in range(40)
    ]
    assert {sum(TRUE[pair] in (reply or "") for pair in ((0, 0), (1, 1))) for reply in replies} == {0, 1, 2}
    assert all(
        any(silent in (reply or "") for silent in SILENT) for reply in replies if TRUE[0, 0] not in (reply or "")
    )


def test_the_config_names_it() -> None:
    partner = make_partner(parse_config({}, ["partner.args.answers=0.25"]))
    assert partner is not None and partner.identity["answers"] == 0.25
    with pytest.raises(ConfigError, match="between 0 and 1"):
        make_partner(parse_config({}, ["partner.args.answers=2"]))
