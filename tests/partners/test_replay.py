from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import BaseEnvironment, Utterance, View
from slim_rl.errors import DataError, SlimWarning
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.settings import MatchingSettings
from slim_rl.partners.replay import ReplayPartner

GAME, OTHER = generate_games(2, MatchingSettings(n=3, scales=False), seed=7)
HELLO, NOTED, QUESTION, ANSWER = (
    "[message] Hello.",
    "[message] Noted.",
    "[message] Ava on BLEU?",
    "[message] Ava Li on BLEU: 5.",
)


def dialogue(*turns: tuple[int, str, str | None], seed: int = 0, game: GameState = GAME) -> Dialogue:
    return Dialogue(
        id=f"d{seed}",
        game_id="g",
        seat=0,
        seed=seed,
        game_state=game.to_dict(),
        policy={},
        partner={},
        turns=[Turn(text, seat, "policy" if seat == 0 else "partner", error=error) for seat, text, error in turns],
    )


def write(path: Path, *dialogues: Dialogue, torn: str = "") -> Partner:
    lines = [json.dumps(record.to_dict(tokens=False)) + "\n" for record in dialogues]
    path.write_text("".join(lines) + torn, encoding="utf-8")
    return make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))


def view(*said: tuple[int, str], seed: int = 0, game: GameState = GAME) -> View:
    env = MatchingEnv()
    env.reset(game)
    history = tuple(Utterance(seat, text) for seat, text in said)
    return View(1, env.get_prompt_prefix(1), env.get_state_description(1), history, None, seed)


@pytest.fixture
def partner(tmp_path: Path) -> Partner:
    recorded = dialogue(
        (0, "no tag", "Begin with a tag."), (0, HELLO, None), (1, NOTED, None), (0, QUESTION, None), (1, ANSWER, None)
    )
    with pytest.warns(SlimWarning, match="incomplete"):
        return write(tmp_path / "log.jsonl", recorded, torn='{"id": "cut of')


async def test_says_again_what_was_said(partner: Partner) -> None:
    assert (await partner.act(view((0, HELLO)))).text == NOTED
    assert (await partner.act(view((0, HELLO), (1, NOTED), (0, QUESTION)))).text == ANSWER
    assert partner.identity == {"kind": "replay", "log": "log.jsonl"}


async def test_a_conversation_that_diverges_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match=r"turn 3: '\[message\] Bye' was not said"):
        await partner.act(view((0, HELLO), (1, NOTED), (0, "[message] Bye")))


async def test_a_record_that_is_used_up_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match="used up after turn 4"):
        await partner.act(view((0, HELLO), (1, NOTED), (0, QUESTION), (1, ANSWER)))


async def test_an_unknown_game_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match="no dialogue of this game"):
        await partner.act(view((0, HELLO), game=OTHER))


async def test_several_dialogues_the_fitting_one_is_followed(tmp_path: Path) -> None:
    partner = write(
        tmp_path / "log.jsonl",
        dialogue((0, HELLO, None), (1, "[message] one", None), seed=1),
        dialogue((0, HELLO, None), (1, "[message] two", None), seed=2),
        dialogue((0, QUESTION, None), (1, ANSWER, None), seed=3),
    )
    assert (await partner.act(view((0, HELLO), seed=1))).text == "[message] one"
    assert (await partner.act(view((0, HELLO), seed=2))).text == "[message] two"
    assert (await partner.act(view((0, QUESTION), seed=2))).text == ANSWER


def test_unusable_log_is_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no dialogue log .*missing\.jsonl"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(tmp_path / "missing.jsonl")}}))
    path = tmp_path / "bad.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.jsonl, line 1: not a dialogue"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))
    path.write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(DataError, match="line 1"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))
    path.write_text(json.dumps(dialogue((0, HELLO, None)).to_dict() | {"game_state": {"word": "sun"}}) + "\n")
    with pytest.raises(DataError, match=r"bad\.jsonl: d0 is not a dialogue of this run's game"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))


async def test_line_ends_of_any_kind_may_be_said(tmp_path: Path) -> None:
    odd = "[message] a\u2028b\u2029c\x85d"
    record = json.dumps(dialogue((0, HELLO, None), (1, odd, None)).to_dict(tokens=False), ensure_ascii=False)
    path = tmp_path / "log.jsonl"
    path.write_text(record + "\n", encoding="utf-8")
    partner = make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))
    assert (await partner.act(view((0, HELLO)))).text == odd


class Word(BaseEnvironment):
    """A game for two with nothing but words."""

    seats = 2

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        self.words = game_state["words"]
        return "", {}

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        raise NotImplementedError

    def get_normalized_reward(self) -> float:
        return 0.0

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return "Talk."

    def get_state_description(self, seat: int = 0) -> str:
        return f"Your word is {self.words[seat]}."


async def test_custom_game_is_replayed(tmp_path: Path) -> None:
    records = [
        dialogue((0, "hi", None), (1, f"I have {word}.", None)).to_dict()
        | {"id": word, "game_state": {"words": ["x", word]}}
        for word in ("sun", "moon")
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    partner = ReplayPartner(path, Word)
    moon = View(1, "Talk.", "Your word is moon.", (Utterance(0, "hi"),), None, 0)
    assert (await partner.act(moon)).text == "I have moon."
    with pytest.raises(PartnerFailure, match="no dialogue of this game with its partner on seat 0"):
        await partner.act(View(0, "Talk.", "Your word is moon.", (), None, 0))


async def test_replay_skips_turns_without_a_reply(tmp_path: Path) -> None:
    recorded = dialogue((0, HELLO, None), (1, "", "no reply"))
    recorded.failure = "no reply"
    with pytest.raises(PartnerFailure, match="used up after turn 1"):
        await write(tmp_path / "log.jsonl", recorded).act(view((0, HELLO)))
