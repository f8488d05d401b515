"""Partners that a policy is tried on and was not trained with."""

from __future__ import annotations

import itertools
import re

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.players import make_partner
from slim_rl.errors import ConfigError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.scripted import ScriptedPartner, ShyPartner
from slim_rl.games.matching.questions.answers import answers, stated_pairs
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.study.controls import NOT_TOLD, TOLD, ErringPartner, RephrasedPartner
from tests.games.matching.partners.test_scripted import LARGE, SCALED, SMALL, GameState, Match, cells, names


def replies(partner: ScriptedPartner, state: GameState, seed: int, known: bool = True) -> dict[tuple[int, int], str]:
    match = Match(partner, state, seed=seed, max_turns=200)
    return {pair: match.say(f"[message] What is {names(state, pair)}?") or "" for pair in cells(state, 1, known)}


@pytest.mark.parametrize("state", [SMALL, SCALED, LARGE])
def test_it_errs_in_a_tenth_of_its_answers_and_sticks_to_it(state: GameState) -> None:
    shown, wrong, total = state.displayed(1), 0, 0
    for seed in range(200 if state is not LARGE else 30):
        partner = ErringPartner()
        first = replies(partner, state, seed)
        assert replies(partner, state, seed) == first
        for pair, reply in first.items():
            values = dict(read(reply, state.roster).statements)
            assert values.keys() == {pair}
            wrong += values[pair] != shown[pair[0]][pair[1]]
            assert 0 <= values[pair] < 100 * state.scale2
        total += len(first)
        assert all(
            reply.startswith("[message] I have no score") for reply in replies(partner, state, seed, False).values()
        )
    assert 0.06 < wrong / total < 0.14
    truth = replies(ErringPartner(errs=0.0), state, 1)
    assert all(dict(read(reply, state.roster).statements)[r, p] == shown[r][p] for (r, p), reply in truth.items())


@pytest.mark.parametrize("sentence", [*TOLD, *ShyPartner.score_sentences])
def test_what_is_told_in_other_words_is_read(sentence: str) -> None:
    roster = LARGE.roster
    for pair, value in itertools.product(itertools.product(range(8), range(8)), (0, 7, 62, 640)):
        text = f"[message] {sentence.format(names=names(LARGE, pair), value=value)}"
        assert read(text, roster).statements == ((pair, value),)
        assert stated_pairs([pair], text, roster) == [pair] and read(text, roster).asked == ()


@pytest.mark.parametrize("sentence", [*NOT_TOLD, *ShyPartner.denial_sentences])
def test_what_is_missing_in_other_words_is_read(sentence: str) -> None:
    for pair in itertools.product(range(8), range(8)):
        text = f"[message] {sentence.format(names=names(LARGE, pair))}"
        assert answers([pair], text, LARGE.roster) == {pair: "none"} and not read(text, LARGE.roster).statements


def test_other_words_say_the_same_and_are_heard() -> None:
    heard = set()
    for seed in range(10):
        partner = RephrasedPartner()
        for (r, p), reply in (replies(partner, SMALL, seed) | replies(partner, SMALL, seed, False)).items():
            heard.add(re.sub(r"\w+ \w+ on \w+|\d+", "_", reply))
            env = MatchingEnv()
            env.reset(SMALL)
            env.step("[message] Hello.")
            env.step(reply)
            value = SMALL.displayed(1)[r][p]
            own = SMALL.displayed(0)[r][p]
            assert env.known(0)[r][p] == (value if own is None else own)
    assert len(heard) == len(TOLD) + len(NOT_TOLD)


def test_two_pairs_in_one_question_are_read_apart() -> None:
    a, b = cells(LARGE, 1, True)[:2]
    for seed in range(30):
        reply = Match(RephrasedPartner(), LARGE, seed=seed).say(
            f"[message] What are {names(LARGE, a)} and {names(LARGE, b)}?"
        )
        assert dict(read(reply or "", LARGE.roster).statements) == {(r, p): LARGE.displayed(1)[r][p] for r, p in (a, b)}


@pytest.mark.parametrize("kind", ["erring", "rephrased"])
def test_the_config_names_them(kind: str) -> None:
    partner = make_partner(parse_config({"partner": {"kind": kind}}))
    assert partner is not None and partner.identity["kind"] == kind


def test_partner_wordings_exclude_the_unmet_ones() -> None:
    def sentences(wordings: int) -> set[str]:
        partner = ShyPartner(wordings=wordings)
        said = {pair: reply for seed in range(60) for pair, reply in replies(partner, SMALL, seed).items()}
        found = [replies(partner, SMALL, seed) for seed in range(60)]
        assert said and found[0] == replies(partner, SMALL, 0), "the same dialogue hears the same words again"
        value = SMALL.displayed(1)
        return {
            reply.replace(names(SMALL, (r, p)), "{names}")
            .replace(f"{value[r][p]}", "{value}")
            .removeprefix("[message] ")
            for some in found
            for (r, p), reply in some.items()
        }

    assert sentences(1) == {ShyPartner.score_sentences[0]}
    assert sentences(3) == set(ShyPartner.score_sentences[:3])
    assert sentences(8) == set(ShyPartner.score_sentences) and len(set(ShyPartner.score_sentences)) == 8
    assert set(TOLD).isdisjoint(ShyPartner.score_sentences) and set(NOT_TOLD).isdisjoint(ShyPartner.denial_sentences)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"wordings": 9}, r"partner\.args\.wordings is 9, but a scripted partner has 1 to 8"),
        ({"wordings": 1.5}, r"partner\.args\.wordings is 1\.5"),
        ({"max_pairs": 0}, r"partner\.args\.max_pairs is 0, but a message may ask about 1 pair"),
        ({"max_pairs": "two"}, r"partner\.args\.max_pairs is 'two'"),
        ({"accept_fraction": 3}, r"partner\.args\.accept_fraction is 3, but a share lies between 0 and 1"),
        ({"answers": None}, r"partner\.args\.answers is None, but a chance lies between 0 and 1"),
    ],
)
def test_arguments_that_no_partner_can_have_are_refused(args: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_partner(parse_config({"partner": {"kind": "shy", "args": args}}))
