"""The scripted player that the local model learns from."""

import asyncio
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slim_rl.config import Config, PartnerConfig, parse_config
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import StopReason
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv, MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.games.matching.reading.acts import INFORMATION_SEEKING
from slim_rl.games.matching.reading.reader import classify
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import MatchingSettings, best_assignment
from slim_rl.games.matching.study.demonstrations import QuestioningPlayer, curriculum
from slim_rl.measured import Lesson
from tests.dialogue.players import Says
from tests.made import played
from tests.paths import ROOT

GAME = MatchingSettings(n=3, scales=False)


def seen(
    table: Any, *history: Utterance, seed: int = 0, price: float | None = None, roster: Roster | None = None
) -> View:
    """The view of seat 0 of a table, after these utterances."""
    own = MatchingView(0, roster or Roster.default(len(table)), tuple(map(tuple, table)), 1.0, None, 24)
    return View(0, "", "", history, own, seed, price)


def demonstrated(config: Config, games: list[Any], lesson: Lesson) -> list[Any]:
    pytest.importorskip("torch")
    from slim_rl.dialogue.chat import Chat
    from slim_rl.lab.warmstart.tokenizer import train_tokenizer
    from slim_rl.lab.warmstart.train import _demonstrations

    chat = Chat(train_tokenizer(["[message] What is Ava Li on BLEU?"] * 3, 400))
    return [(chat, dialogue) for dialogue in _demonstrations(config, games, chat, lesson)]


def test_its_games_end_in_agreement_and_its_questions_vary() -> None:
    games = list(generate_games(60, GAME, seed=3))
    partner = ShyPartner(0.0)
    asked = []
    for index, game in enumerate(games):
        player = QuestioningPlayer()
        dialogue = played(MatchingEnv(12), player, partner, game, seed=index)
        assert dialogue.stop_reason is StopReason.AGREED and dialogue.reward is not None
        assert all(turn.error is None for turn in dialogue.turns)
        asked.append(sum(bool(classify(t.text) & INFORMATION_SEEKING) for t in dialogue.turns if t.seat == 0))
    assert {0, 1, 2} <= set(asked) and statistics.mean(asked) < 1.5


def test_demonstrator_proposes_best_plan_including_answers() -> None:
    told = Utterance(0, "[message] What is Ava Li on Electra?"), Utterance(1, "[message] Ava Li on Electra: 99.")
    view = seen([[60, None], [None, None]], *told)
    reply = asyncio.run(QuestioningPlayer((1.0,)).act(view))
    assert reply.text.startswith("[propose]")
    assert reply.thought == "Ava Li: BLEU 60, Electra 99\nDaniel Nguyen: BLEU ?, Electra ?"
    assert QuestioningPlayer((1.0,)).action(view) == reply.text, "the same view gives the same action"
    silent = asyncio.run(QuestioningPlayer((1.0,), thinks="never").act(view))
    assert (silent.text, silent.thought) == (reply.text, None)


def test_a_name_within_another_is_not_mistaken_for_it() -> None:
    """Of two pairs one was asked about: the other is asked about next."""
    roster = Roster(("Ann", "Anna"), ("GPT-2", "GPT-2 XL"))
    history = (Utterance(0, "[message] What is Anna on GPT-2 XL?"), Utterance(1, "[message] I do not have it."))
    player = QuestioningPlayer((0.0, 0.0, 1.0), {"pair": 1.0})
    for seed in range(9):
        said = player.action(seen([[None, 7], [7, None]], *history, seed=seed, roster=roster))
        assert said.startswith("[message]") and "Ann " in said


def test_demonstrator_proposes_other_plans_when_rejected() -> None:
    values = np.random.default_rng(0).integers(0, 100, (12, 12)).tolist()
    roster = Roster(*(tuple(f"{word} {letter}" for letter in "ABCDEFGHIJKL") for word in ("Reviewer", "Paper")))
    history: list[Utterance] = []
    for _ in range(4):
        said = QuestioningPlayer((1.0,)).action(seen(values, *history, roster=roster))
        history += [Utterance(0, said), Utterance(1, "[reject]")]
    plans = [utterance.text for utterance in history[::2]]
    assert plans[0] == format_proposal(best_assignment(values)[0], roster) and len(set(plans)) == 4


def test_demonstrations_teach_its_own_words_alone() -> None:
    pytest.importorskip("torch")
    from slim_rl.lab.warmstart.train import _labels

    config = Config(game=GAME, partner=PartnerConfig(args={"accept_fraction": 0}))
    games = [(game.id, game) for game in generate_games(30, GAME, seed=4)]
    lesson = Lesson(QuestioningPlayer(), {"shy": 1.0, "mute": 1.0})
    for chat, dialogue in demonstrated(config, games, lesson):
        row = _labels(dialogue)
        assert len(row["input_ids"]) == len(row["labels"]) == len(row["attention_mask"])
        taught = [token for token in row["labels"] if token != -100]
        turns = [turn for turn in dialogue.turns if turn.role == "policy"]
        own = ["".join((f"<think>\n{turn.thought}\n</think>\n\n" * bool(turn.thought), turn.text)) for turn in turns]
        assert chat.tokenizer.decode(taught, skip_special_tokens=True) == "".join(own)
        masked = _labels(dialogue, opening=False)["labels"][len(dialogue.prompt_ids) :]
        assert turns[0].span is not None
        assert [token != -100 for token in masked] == [
            bool(mask) and index != turns[0].span[0] for index, mask in enumerate(dialogue.loss_mask)
        ]


def test_its_player_plays_as_the_config_says() -> None:
    config = parse_config({"warmstart": {"player": {"kinds": {"open": 2.0}, "thinks": "turn"}}})
    assert parse_config(config.model_dump(mode="json")).warmstart == config.warmstart
    for given, kinds, thinks in ((config, {"open": 2.0}, "turn"), (Config(), {"pair", "open", "tell"}, "plan")):
        taught = curriculum(given)
        for player in (taught.demonstrations.player, taught.speaker):
            assert player.kinds.keys() == set(kinds) and player.thinks == thinks


def test_gaps_lesson_asks_each_remaining_pair_once() -> None:
    settings = {"game": {"n": 3, "scales": False}, "partner": {"args": {"accept_fraction": 0}}}
    config = parse_config({**settings, "warmstart": {"messages": [0.1, 0.3, 0.3, 0.3]}})
    lesson = curriculum(config).lessons["gaps"]
    assert lesson.deals is not None
    dealt = list(lesson.deals(60))
    fewer = 0
    for (_, game), (_, dialogue) in zip(dealt, demonstrated(config, dealt, lesson), strict=True):
        left = {(r, p) for r in range(3) for p in range(3) if not game.mask(dialogue.seat)[r][p]}
        annotate(dialogue)
        questions = [turn for turn in dialogue.turns if turn.role == "policy" and turn.questions]
        asked = [pair for turn in questions for pair in turn.pairs]
        assert len(asked) == len(set(asked)) == len(questions) and set(asked) <= left
        assert dialogue.stop_reason is StopReason.AGREED
        assert 1 <= len(left) <= 4 and len(asked) >= 1
        fewer += len(asked) == len(left) < 3
    assert fewer > 5, "with nothing left to ask it proposes"


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"turn_tokens": 20}, r"limits\.turn_tokens=20, by a turn of \d+ tokens"),
        ({"turn_tokens": 20, "truncated_turn": "continue"}, r"limits\.turn_tokens=20, by a turn"),
        ({"dialogue_tokens": 60}, r"limits\.dialogue_tokens=60, by a turn of \d+ tokens with this tokenizer"),
        ({"context_tokens": 100}, r"limits\.context_tokens=100, by a turn"),
    ],
)
def test_a_cut_demonstration_is_refused(tmp_path: Path, limits: dict[str, Any], named: str) -> None:
    pytest.importorskip("torch")
    from slim_rl.lab.warmstart.train import warmstart

    start = ROOT / "data" / "warmstart"
    data = {"train": f"{tmp_path}/t.jsonl", "eval": f"{tmp_path}/e.jsonl", "num_train": 20, "num_eval": 2}
    made = {"start": str(start), "games": 4, "lessons": {"seen": 2}, "messages": [0.0, 1.0]}
    game = {"n": 3, "scales": False, "rules": "none"}
    config = parse_config({"game": game, "data": data, "limits": limits, "warmstart": made})
    with pytest.raises(ConfigError, match=named):
        warmstart(config, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("price", "asks"), [(None, True), (0.0, True), (1e-6, True), (0.5, False)])
def test_one_who_minds_the_price_asks_only_what_promises_more(price: float | None, asks: bool) -> None:
    view = seen([[None, 20, 70], [10, None, None], [50, 40, None]], seed=1, price=price)
    minding = QuestioningPlayer((0.0, 0.0, 1.0), {"pair": 1.0}, cost_aware_share=1.0)
    assert minding.action(view).startswith("[message]") == asks
    assert QuestioningPlayer((0.0, 1.0), {"pair": 1.0}).action(view).startswith("[message]")


def test_a_price_is_seen_by_the_seat_that_is_told_it() -> None:
    players = Says(QuestioningPlayer((0.0, 1.0)).action), Says(ShyPartner(0.0).action)
    state = next(generate_games(1, GAME, seed=4))
    played(MatchingEnv(), *players, state, price=0.02)
    assert [{view.price for view in player.views} for player in players] == [{0.02}, {None}]
