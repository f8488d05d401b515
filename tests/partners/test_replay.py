from __future__ import annotations

import json
from pathlib import Path

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import Utterance, View
from slim_rl.errors import DataError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.settings import MatchingSettings

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
        turns=[Turn(seat, "policy" if seat == 0 else "partner", text, error=error) for seat, text, error in turns],
    )


def write(path: Path, *dialogues: Dialogue, torn: str = "") -> Partner:
    lines = [json.dumps(record.to_dict(tokens=False)) + "\n" for record in dialogues]
    path.write_text("".join(lines) + torn, encoding="utf-8")
    return make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))


def view(*said: tuple[int, str], seed: int = 0, game: GameState = GAME) -> View:
    env = MatchingEnv()
    env.reset(game)
    return View(1, "", "", tuple(Utterance(seat, text) for seat, text in said), env.get_private_view(1), seed)


@pytest.fixture
def partner(tmp_path: Path) -> Partner:
    recorded = dialogue(
        (0, "no tag", "Begin with a tag."), (0, HELLO, None), (1, NOTED, None), (0, QUESTION, None), (1, ANSWER, None)
    )
    return write(tmp_path / "log.jsonl", recorded, torn='{"id": "cut of')


async def test_says_again_what_was_said(partner: Partner) -> None:
    assert (await partner.reply(view((0, HELLO)))).text == NOTED
    assert (await partner.reply(view((0, HELLO), (1, NOTED), (0, QUESTION)))).text == ANSWER
    assert partner.identity == {"kind": "replay", "log": "log.jsonl"}


async def test_a_conversation_that_diverges_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match=r"turn 3: '\[message\] Bye' was not said"):
        await partner.reply(view((0, HELLO), (1, NOTED), (0, "[message] Bye")))


async def test_a_record_that_is_used_up_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match="used up after turn 4"):
        await partner.reply(view((0, HELLO), (1, NOTED), (0, QUESTION), (1, ANSWER)))


async def test_an_unknown_game_is_a_failure(partner: Partner) -> None:
    with pytest.raises(PartnerFailure, match="no dialogue of this game"):
        await partner.reply(view((0, HELLO), game=OTHER))


async def test_of_several_dialogues_the_one_that_fits_is_followed(tmp_path: Path) -> None:
    partner = write(
        tmp_path / "log.jsonl",
        dialogue((0, HELLO, None), (1, "[message] one", None), seed=1),
        dialogue((0, HELLO, None), (1, "[message] two", None), seed=2),
        dialogue((0, QUESTION, None), (1, ANSWER, None), seed=3),
    )
    assert (await partner.reply(view((0, HELLO), seed=1))).text == "[message] one"
    assert (await partner.reply(view((0, HELLO), seed=2))).text == "[message] two"
    assert (await partner.reply(view((0, QUESTION), seed=2))).text == ANSWER


def test_a_log_that_cannot_be_used_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read the log .*missing\.jsonl"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(tmp_path / "missing.jsonl")}}))
    path = tmp_path / "bad.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="Line 1 of"):
        make_partner(parse_config({"partner": {"kind": "replay", "replay": str(path)}}))
