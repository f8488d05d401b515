"""Partners that a policy is tried on: by dose, erring, in other words, and what each accepts."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.players import make_partner
from slim_rl.games.matching.env import MatchingEnv, MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.judging import estimates, judge
from slim_rl.games.matching.partners.scripted import SILENT, ScriptedPartner, ShyPartner
from slim_rl.games.matching.questions.answers import answers, stated_pairs
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState, MatchingSettings, best_assignment
from slim_rl.games.matching.study.controls import NOT_TOLD, TOLD, ErringPartner, RephrasedPartner
from tests.games.matching.partners.test_scripted import LARGE, SCALED, SMALL, Match, cells, names


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


N = None


def view(table: list[list[int | None]], scale: float = 1.0) -> MatchingView:
    rows = tuple(tuple(row) for row in table)
    return MatchingView(seat=1, roster=Roster.default(len(rows)), table=rows, scale=scale, pending=None, turns_left=10)


def seen(state: GameState, seat: int) -> MatchingView:
    return MatchingView(seat, state.roster, state.displayed(seat), state.scale(seat), None, 10)


def test_unknown_cells_count_as_expected() -> None:
    assert estimates(view([[90, N], [N, 10]])) == ((90, 50), (50, 10))
    assert estimates(view([[900, N], [N, 100]], scale=10.0)) == ((900, 500), (500, 100))


def test_threshold_is_a_fraction_of_the_own_best() -> None:
    game = view([[90, N], [N, 50]])  # best 140, the other plan 100
    assert judge(game, (0, 1), 1.0).accepts
    verdict = judge(game, (1, 0), 0.75)
    assert (verdict.value, verdict.best, verdict.accepts) == (100, 140, False)
    assert judge(game, (1, 0), 100 / 140).accepts
    assert judge(view([[99, 0], [0, 99]]), (1, 0), 0.0).accepts


@pytest.mark.parametrize("n", [3, 8])
def test_own_best_plan_is_accepted_at_any_fraction(n: int) -> None:
    for state in generate_games(300, MatchingSettings(n=n, hardness=0, scales=True), seed=3):
        game = seen(state, 1)
        assert judge(game, best_assignment(estimates(game))[0], 1.0).accepts


@pytest.mark.parametrize("scales", [False, True])
def test_acceptance_on_8x8(scales: bool) -> None:
    """0.75 accepts every pooled-optimal plan, few of the other seat's own plans, and a good third of random ones."""
    rng = random.Random(0)
    pooled, other, chance = [], [], []
    for state in generate_games(60, MatchingSettings(n=8, scales=scales), seed=2):
        for seat in (0, 1):
            game = seen(state, seat)
            unknown = 50 * state.scale(1 - seat)
            its = [[unknown if value is None else value for value in row] for row in state.displayed(1 - seat)]
            pooled.append(judge(game, state.best(), 0.75).accepts)
            other.append(judge(game, best_assignment(its)[0], 0.75).accepts)
            chance.append(judge(game, tuple(rng.sample(range(8), 8)), 0.75).accepts)
    assert all(pooled)
    assert sum(other) / len(other) < 0.2
    assert 0.2 < sum(chance) / len(chance) < 0.55
