"""Dialogues of a game that works plans out (`game.planner: solver`) and shows what is known (`game.show_known`); its rules: `games.yaml`."""

from typing import Any

import pytest

from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.demonstrations import QuestioningPlayer
from tests.made import played
from tests.partners.openai_setup import partner_config

GAME = MatchingSettings(n=4, p_observed=0.3, p_observed_2=0.9, hardness=0, scales=False)


class Reader(QuestioningPlayer):
    """A player that keeps what it reads before each of its turns."""

    async def act(self, view: View) -> Turn:
        self.read.append(view)
        return await super().act(view)


def solved(state: GameState, questions: tuple[float, ...], seed: int = 1, **settings: Any) -> tuple[Dialogue, Reader]:
    shown = {"show_known": settings.pop("show_known")} if "show_known" in settings else {}
    player, env = Reader(questions, {"pair": 1.0}, **settings), MatchingEnv(planner="solver", **shown)
    player.read = []
    dialogue = played(env, player, ShyPartner(0.0), state, seed=seed)
    annotate(dialogue)
    return dialogue, player


def test_solver_games_are_annotated_and_lose_nothing() -> None:
    """Their plans are as good as the best known; one by one they differ where several plans tie for the best."""
    lost = []
    for seed, state in enumerate(generate_games(150, GAME, seed=3)):
        dialogue, _ = solved(state, (0.0, 0.3, 0.3, 0.4), seed)
        assert dialogue.stop_reason is StopReason.AGREED and dialogue.reward is not None
        proposal = dialogue.turns[-2]
        assert proposal.proposes and proposal.text == "[propose]" and proposal.action is not None
        worth = state.score(proposal.action["assignment"]) / state.best_assignment_reward
        assert dialogue.reward == pytest.approx(worth)
        assert Dialogue.from_dict(dialogue.to_dict()).turns[-2].action == proposal.action
        assert proposal.thought is None, "there is no plan to think of"
        assert proposal.best_known is not None
        lost.append(proposal.best_known - dialogue.reward)
    assert abs(sum(lost) / len(lost)) < 0.02
    assert sum(abs(one) < 1e-6 for one in lost) > len(lost) / 3


def test_player_asks_about_the_marked_plan_if_set() -> None:
    """About a pair that the table in front of it marks and has no score of, while there is one that it has not asked about."""
    of_it = 0
    for seed, state in enumerate(generate_games(20, GAME, seed=4)):
        settings: dict[str, Any] = {"ask_about_plan_share": 1.0, "show_known": "plan"}
        dialogue, player = solved(state, (0.0, 0.0, 0.0, 0.0, 1.0), seed, **settings)
        asked: list[tuple[int, int]] = []
        for turn, view in zip(dialogue.turns[:-2:2], player.read, strict=False):
            shown = (view.observation or view.state_description).splitlines()
            rows = {line.partition(":")[0]: line.partition(":")[2].split(",") for line in shown if "," in line}
            cells = ((r, p, cell) for r, name in enumerate(state.roster.reviewers) for p, cell in enumerate(rows[name]))
            marked = {(r, p) for r, p, cell in cells if cell.endswith("*")}
            left = {pair for pair in marked if view.private[pair] is None} - set(asked)
            (pair,) = turn.pairs or ()
            assert pair in left or not left
            of_it += pair in left
            asked.append(pair)
        assert len(asked) == 4
    assert of_it >= 60


def test_policy_reads_the_table_and_may_think_it_each_turn() -> None:
    state = next(generate_games(1, GAME, seed=4))
    dialogue, player = solved(state, (0.0, 0.0, 1.0), thinks="turn", show_known=True)
    assert len(player.read) == 3 and all("What you know:" in view.observation for view in player.read[1:])
    thoughts = [turn.thought or "" for turn in dialogue.turns if turn.role == "policy"]
    assert all(thought.startswith("Ava Li: BLEU") for thought in thoughts)
    known = [thought.count("?") for thought in thoughts]
    assert known[0] > known[1] > known[2], "each question fills a cell, or marks it as asked in vain"


def test_chat_partner_reads_the_plan_and_its_value(game: GameState) -> None:
    env = MatchingEnv(planner="solver", show_known=True)
    env.reset(game)
    history = (Utterance(0, "[propose]", None, env.step("[propose]")[0]),)
    view = View(1, env.get_prompt_prefix(1), env.get_state_description(1), history, env.get_private_view(1), 7)
    partner = MatchingChatPartner(partner_config("http://localhost:1/v1").openai)
    last = partner.messages(view)[-1]["content"]
    assert "> [propose]\n> BLEU: Ava Li\n> Electra: Daniel Nguyen\n> GloVe: Sofia Patel\nAnswer with [accept]" in last
    assert "to you this plan is worth" in last and "What you know" not in last
