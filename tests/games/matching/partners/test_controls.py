"""Partners that a policy is tried on: one that errs, one with other words, and one that repeats what was told elsewhere."""

import itertools
import re
from pathlib import Path

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.errors import DataError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import NOTED, ShyPartner
from slim_rl.games.matching.questions.answers import answers, stated_pairs
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.controls import ErringPartner, RephrasedPartner, YokedPartner
from tests.games.matching.partners.match import LARGE, SCALED, SMALL, Match, asked_all, cells, stated


@pytest.mark.parametrize("state", [SMALL, SCALED, LARGE])
def test_it_errs_in_a_tenth_of_its_answers_and_sticks_to_it(state: GameState) -> None:
    shown, wrong, total = state.displayed(1), 0, 0
    for seed in range(200 if state is not LARGE else 30):
        first = asked_all(ErringPartner(), state, seed)
        assert seed > 9 or asked_all(ErringPartner(), state, seed) == first
        for (r, p), reply in first.items():
            values = dict(read(reply, state.roster).statements)
            assert values.keys() == {(r, p)} and 0 <= values[r, p] < 100 * state.scale2
            wrong += values[r, p] != shown[r][p]
        total += len(first)
    assert 0.06 < wrong / total < 0.14
    for reply in asked_all(ErringPartner(), state, 1, known=False).values():
        assert reply.startswith("[message] I have no score")
    for errs, seeds in ((0.0, 1), (1.0, 30 if state is LARGE else 100)):  # the wrong score is never the right one
        told = [pair for seed in range(seeds) for pair in asked_all(ErringPartner(errs=errs), state, seed).items()]
        assert {dict(read(reply, state.roster).statements)[r, p] == shown[r][p] for (r, p), reply in told} == {not errs}


SCORES = [*RephrasedPartner.score_sentences, *ShyPartner.score_sentences]
DENIALS = [*RephrasedPartner.denial_sentences, *ShyPartner.denial_sentences]


@pytest.mark.parametrize("sentence", SCORES + DENIALS)
def test_score_or_its_lack_in_any_words_is_read(sentence: str) -> None:
    roster = LARGE.roster
    for pair, value in itertools.product(itertools.product(range(8), range(8)), (0, 7, 62, 640)):
        text = f"[message] {sentence.format(names=roster.pair(pair), value=value)}"
        if "{value}" in sentence:
            assert read(text, roster).statements == ((pair, value),)
            assert stated_pairs([pair], text, roster) == [pair] and read(text, roster).asked == ()
        elif value == 0:
            assert answers([pair], text, roster) == {pair: "none"} and not read(text, roster).statements


def test_other_words_say_the_same_and_are_heard() -> None:
    heard = set()
    for seed in range(10):
        partner = RephrasedPartner()
        for (r, p), reply in (asked_all(partner, SMALL, seed) | asked_all(partner, SMALL, seed, known=False)).items():
            heard.add(re.sub(r"\w+ \w+ on \w+|\d+", "_", reply))
            env = MatchingEnv()
            env.reset(SMALL)
            env.step("[message] Hello.")
            env.step(reply)
            value, own = SMALL.displayed(1)[r][p], SMALL.displayed(0)[r][p]
            assert env.known(0)[r][p] == (value if own is None else own)
        two = cells(LARGE)[:2]
        reply = Match(partner, LARGE, seed=seed).ask(*two)
        assert dict(read(reply, LARGE.roster).statements) == {(r, p): LARGE.displayed(1)[r][p] for r, p in two}
    assert len(heard) == len(RephrasedPartner.score_sentences) + len(RephrasedPartner.denial_sentences)
    assert len(set(SCORES)) == len(SCORES) and len(set(DENIALS)) == len(DENIALS)


OTHER = next(generate_games(1, MatchingSettings(n=3, scales=False, p_observed_2=0.9, hardness=0), seed=5))
KNOWN = cells(SMALL)


def ask(pair: Pair) -> str:
    return f"What is {SMALL.roster.pair(pair)}?"


def recorded(questions: list[str], seed: int, state: GameState = SMALL) -> Dialogue:
    """A dialogue with a shy partner in which these questions were asked."""
    match, turns = Match(ShyPartner(), state, seed=seed), []
    for question in questions:
        turns.append(Turn(f"[message] {question}", 0, "policy", {"kind": "message"}))
        turns.append(Turn(match.say(turns[-1].text) or "", 1, "partner", {"kind": "message"}))
    plan = format_proposal((0, 1, 2), state.roster)
    turns += [Turn(plan, 0, "policy", {"kind": "propose"}), Turn("[accept]", 1, "partner", {"kind": "accept"})]
    dialogue = Dialogue(f"{state.id}-{seed}-{len(turns)}", state.id, 0, seed, state.to_dict(), {}, {}, turns=turns)
    dialogue.reward, dialogue.stop_reason = 1.0, StopReason.AGREED
    return dialogue


def yoked(folder: Path, *dialogues: Dialogue) -> YokedPartner:
    with DialogueLog(folder / "train.jsonl") as log:
        for dialogue in dialogues:
            log.append(dialogue)
    return YokedPartner(replay=folder)


def told(partner: YokedPartner, seed: int, *words: str, state: GameState = SMALL) -> list[list[Pair]]:
    """The cells of each reply; a reply without one is a stock sentence."""
    match = Match(partner, state, seed=seed)
    replies = [match.say(f"[message] {word}") or "" for word in words]
    found = [stated([reply], state) for reply in replies]
    shown = state.displayed(1)
    assert all(shown[r][p] == value for each in found for (r, p), value in each.items())
    assert all(each or reply.removeprefix("[message] ") in NOTED for each, reply in zip(found, replies, strict=True))
    return [list(each) for each in found]


def test_its_twin_decides_what_is_told_and_when(tmp_path: Path) -> None:
    a, b, c = KNOWN[:3]
    partner = yoked(tmp_path, recorded([ask(a), "Hello.", ask(b)], 7), recorded([ask(b)], 8))
    for words in (["Hello."] * 4, [ask(c)] * 4, [ask(b), ask(a), "What is your best?", "Ava on BLEU is 3."]):
        assert told(partner, 7, *words) == [[a], [], [b], []]
    assert Match(partner, SMALL, seed=7).say(format_proposal(SMALL.best(), SMALL.roster)) == "[accept]"


def test_without_a_twin_another_of_the_game_counts(tmp_path: Path) -> None:
    a, b = KNOWN[:2]
    partner = yoked(tmp_path, recorded([ask(a)], 1), recorded([ask(b)], 2), recorded([], 3, OTHER))
    assert {tuple(told(partner, seed, "Hello.")[0]) for seed in range(10, 40)} == {(a,), (b,)}
    partner = yoked(tmp_path / "other", recorded([ask(a), "Hello.", ask(b)], 1))
    firsts = set()
    for seed in range(20):
        found = told(partner, seed, *[ask(a)] * 5, state=OTHER)
        assert [len(each) for each in found] == [1, 0, 1, 0, 0] and found[0] != found[2]
        firsts.update(found[0])
    assert len(firsts) > 3


def test_the_later_of_two_twins_counts_and_failed_ones_do_not(tmp_path: Path) -> None:
    a, b = KNOWN[:2]
    failed = recorded([ask(a)] * 3, 1)
    failed.stop_reason, failed.reward = StopReason.DEADLINE, None
    partner = yoked(tmp_path, recorded([ask(a)], 1), recorded([ask(b), "Hello."], 1), failed)
    assert told(partner, 1, "Hello.") == [[b]]


def test_the_config_names_its_log(tmp_path: Path) -> None:
    yoked(tmp_path, recorded([ask(KNOWN[0])], 1))
    args = {"replay": str(tmp_path), "max_pairs": 1}  # what the shy partner beside it has
    partner = make_partner(parse_config({"partner": {"kind": "yoked", "args": args}}))
    assert partner is not None and partner.identity["kind"] == "yoked" and partner.identity["log"] == tmp_path.name
    with pytest.raises(DataError, match="no dialogue log"):
        make_partner(parse_config({"partner": {"kind": "yoked", "args": {"replay": str(tmp_path / "none")}}}))
