"""A game that works plans out (`game.planner: solver`) and shows what is known (`game.show_known`): the player has only to ask."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.demonstrations import QuestioningPlayer
from tests.partners.openai_setup import partner_config

GAME = MatchingSettings(n=4, p_observed=0.3, p_observed_2=0.9, hardness=0, scales=False)


def dealt(state: GameState, **settings: object) -> MatchingEnv:
    env = MatchingEnv(planner="solver", **settings)  # type: ignore[arg-type]
    env.reset(state)
    return env


def marked(text: str, state: GameState) -> set[tuple[int, int]]:
    """The pairs that a table in `text` marks."""
    rows = {line.partition(":")[0]: line.partition(":")[2].split(",") for line in text.splitlines() if "," in line}
    return {
        (r, p)
        for r, name in enumerate(state.roster.reviewers)
        for p, cell in enumerate(rows[name])
        if cell.endswith("*")
    }


def test_best_plan_so_far_is_marked_in_the_tables(game: GameState) -> None:
    """By what each sees and was told, brute force over all plans, and what a proposal alone would be."""
    state = replace(game, scale1=1.0, scale2=1.0)
    values = [[90, 10, 20], [30, 90, 40], [50, 50, 50]]
    env = dealt(state, show_known="plan")
    assert "* marks" in env.get_prompt_prefix(0)
    assert marked(env.get_state_description(0), state) == {(0, 0), (1, 1), (2, 2)}
    env.step("[message] What are Sofia Patel on BLEU and Sofia Patel on GloVe?")
    observation = env.step("[message] Sofia Patel on BLEU: 99. Sofia Patel on GloVe: 1.")[0]
    known = [*values[:2], [99, 50, 1]]
    best = max(itertools.permutations(range(3)), key=lambda plan: sum(known[r][plan[r]] for r in range(3)))
    assert marked(observation, state) == set(enumerate(best)) != {(0, 0), (1, 1), (2, 2)}
    env.step("[propose]")
    assert env.pending == best
    plain = dealt(state)
    assert not marked(plain.get_state_description(0), state) and "* marks" not in plain.get_prompt_prefix(0)


def played(state: GameState, seed: int, env: MatchingEnv) -> Dialogue:
    player = QuestioningPlayer((0.0, 0.3, 0.3, 0.4), {"pair": 1.0})
    dialogue = asyncio.run(
        play_dialogue(env, player, ShyPartner(0.0), None, Limits(), game_state=state, id="d", seed=seed)
    )
    annotate(dialogue)
    return dialogue


def test_bare_proposal_is_the_best_plan_from_known_scores(game: GameState) -> None:
    """By brute force over all plans, and before and after an answer that changes which is best."""
    state = replace(game, scale1=1.0, scale2=1.0)
    values = [[90, 10, 20], [30, 90, 40], [50, 50, 50]]
    for questions, told in ((), {}), (("Sofia Patel on BLEU", "Sofia Patel on GloVe"), {(2, 0): 99, (2, 2): 1}):
        env = dealt(state)
        for question, value in zip(questions, told.values(), strict=True):
            env.step(f"[message] What is {question}?")
            env.step(f"[message] {question}: {value}.")
        known = [[told.get((r, p), value) for p, value in enumerate(row)] for r, row in enumerate(values)]
        best = max(itertools.permutations(range(3)), key=lambda plan: sum(known[r][plan[r]] for r in range(3)))
        observation, done, info = env.step("[propose]")
        assert info["action"]["assignment"] == list(best) and not done
        assert env.pending == best
        lines = [f"{state.roster.short_papers[best[r]]}: {state.roster.reviewers[r]}" for r in range(3)]
        assert all(line in observation for line in lines), "the partner reads the whole plan"


def test_solver_uses_false_and_short_answers(game: GameState) -> None:
    env = dealt(replace(game, scale1=1.0, scale2=1.0))
    env.step("[message] What is Sofia Patel on Electra?")
    env.step("[message] 99.")  # truly 60
    assert env.known(0)[2][1] == 99
    env.step("[message] What is Sofia Patel on GloVe?")
    env.step("[message] Sofia Patel on GloVe: 0.")
    assert env.step("[propose]")[2]["action"]["assignment"] == [0, 2, 1]


def test_what_was_told_on_another_scale_is_scaled_back(game: GameState) -> None:
    """The other's 120 is expected to be far below 120 / 1: by itself it moves no plan of scores near 90."""
    env = dealt(game)
    env.step("[message] What is Sofia Patel on Electra?")
    env.step("[message] Sofia Patel on Electra: 120.")
    assert env.step("[propose]")[2]["action"]["assignment"] == [0, 1, 2]


def test_written_plan_stands_and_is_needed_without_solver(game: GameState) -> None:
    text = "[propose]\nBLEU: Sofia Patel\nElectra: Ava Li\nGloVe: Daniel Nguyen"
    assert dealt(game).step(text)[2]["action"]["assignment"] == [1, 2, 0]
    env = MatchingEnv()
    env.reset(game)
    assert "lacks BLEU, Electra and GloVe" in env.step("[propose]")[2]["error"]


def test_the_prompt_says_so(game: GameState) -> None:
    assert "the plan is worked out for you" in dealt(game).get_prompt_prefix()
    env = MatchingEnv()
    env.reset(game)
    assert "the plan is worked out for you" not in env.get_prompt_prefix()


def test_solver_games_are_annotated_logged_and_shown() -> None:
    for seed, state in enumerate(generate_games(20, GAME, seed=2)):
        dialogue = played(state, seed, MatchingEnv(planner="solver"))
        assert dialogue.stop_reason is StopReason.AGREED and dialogue.reward is not None
        proposal = next(turn for turn in dialogue.turns if turn.proposes)
        assert proposal.text == "[propose]" and proposal.action is not None
        assert dialogue.reward == pytest.approx(
            state.score(proposal.action["assignment"]) / state.best_assignment_reward
        )
        again = Dialogue.from_dict(dialogue.to_dict())
        assert again.turns[-2].action == proposal.action
        assert proposal.thought is None, "there is no plan to think of"


def test_its_plans_are_as_good_as_the_best_known() -> None:
    """One by one they differ where several plans tie for the best."""
    dialogues = [
        played(state, seed, MatchingEnv(planner="solver"))
        for seed, state in enumerate(generate_games(150, GAME, seed=3))
    ]
    lost = [dialogue.turns[-2].best_known - dialogue.reward for dialogue in dialogues]  # type: ignore[operator]
    assert abs(sum(lost) / len(lost)) < 0.02
    assert sum(abs(one) < 1e-6 for one in lost) > len(lost) / 3


def test_table_before_each_turn_has_known_and_unanswered(game: GameState) -> None:
    env = dealt(replace(game, scale1=1.0, scale2=1.0), show_known=True)
    env.step("[message] What is Sofia Patel on Electra?")
    assert env.step("[message] Sofia Patel on Electra: 60.")[0] == (
        "[message] Sofia Patel on Electra: 60.\nWhat you know:\n"
        "Ava Li: BLEU 90, Electra 10, GloVe 20\nDaniel Nguyen: BLEU 30, Electra 90, GloVe 40\n"
        "Sofia Patel: BLEU ?, Electra 60, GloVe ?"
    )
    env.step("[message] What is Sofia Patel on BLEU?")
    told, _, _ = env.step("[message] I have no score for Sofia Patel on BLEU.")
    assert told.endswith("Sofia Patel: BLEU -, Electra 60, GloVe ?")
    refused, _, _ = env.step("Hello")
    assert refused.startswith("Error:") and refused.endswith("Sofia Patel: BLEU -, Electra 60, GloVe ?")
    assert "What you know:" not in dealt(game).step("[message] What is Sofia Patel on Electra?")[0]


def test_scores_of_two_scales_are_kept_apart(game: GameState) -> None:
    env = dealt(game, show_known=True)
    env.step("[message] What is Sofia Patel on Electra?")
    observation, _, _ = env.step("[message] Sofia Patel on Electra: 90.")
    assert observation.endswith("Sofia Patel: BLEU ?, Electra ?, GloVe ?")


def test_the_table_is_what_the_policy_reads() -> None:
    state = next(generate_games(1, GAME, seed=4))
    seen: list[str] = []

    class Reader(QuestioningPlayer):
        async def act(self, view):  # type: ignore[no-untyped-def]
            seen.append(view.observation)
            return await super().act(view)

    player = Reader((0.0, 0.0, 1.0), {"pair": 1.0})
    env = MatchingEnv(planner="solver", show_known=True)
    asyncio.run(play_dialogue(env, player, ShyPartner(0.0), None, Limits(), game_state=state, id="d", seed=1))
    assert len(seen) == 3 and all("What you know:" in observation for observation in seen[1:])


def test_a_player_asks_about_the_best_plan_where_it_is_told_to() -> None:
    """About a pair that the table in front of it marks and has no score of, as long as there is one that it has not asked about."""
    of_it = 0

    class Reader(QuestioningPlayer):
        async def act(self, view):  # type: ignore[no-untyped-def]
            nonlocal of_it
            reply = await super().act(view)
            shown, own = view.observation or view.state_description, view.private.roster
            left = {pair for pair in marked(shown, own_state) if view.private[pair] is None} - set(asked)
            if reply.text.startswith("[message]"):
                (pair,) = (pair for pair in view.private.pairs if all(name in reply.text for name in own.names(pair)))
                of_it += pair in left
                assert pair in left or not left
                asked.append(pair)
            return reply

    for seed, own_state in enumerate(generate_games(20, GAME, seed=4)):
        asked: list[tuple[int, int]] = []
        env = MatchingEnv(planner="solver", show_known="plan")
        player = Reader((0.0, 0.0, 0.0, 0.0, 1.0), {"pair": 1.0}, ask_about_plan_share=1.0)
        asyncio.run(
            play_dialogue(env, player, ShyPartner(0.0), None, Limits(), game_state=own_state, id="d", seed=seed)
        )
        assert len(asked) == 4
    assert of_it >= 60


def test_chat_partner_reads_the_plan_and_its_value(game: GameState) -> None:
    env = dealt(game, show_known=True)
    observation, _, _ = env.step("[propose]")
    history = (Utterance(0, "[propose]", None, observation),)
    view = View(1, env.get_prompt_prefix(1), env.get_state_description(1), history, env.get_private_view(1), 7)
    partner = MatchingChatPartner(partner_config("http://localhost:1/v1").openai)
    last = partner.messages(view)[-1]["content"]
    assert "> [propose]\n> BLEU: Ava Li\n> Electra: Daniel Nguyen\n> GloVe: Sofia Patel\nAnswer with [accept]" in last
    assert "to you this plan is worth" in last and "What you know" not in last


def test_a_player_may_think_its_table_before_every_turn() -> None:
    state = next(generate_games(1, GAME, seed=4))
    player = QuestioningPlayer((0.0, 0.0, 1.0), {"pair": 1.0}, thinks="turn")
    dialogue = asyncio.run(
        play_dialogue(
            MatchingEnv(planner="solver"), player, ShyPartner(0.0), None, Limits(), game_state=state, id="d", seed=1
        )
    )
    thoughts = [turn.thought for turn in dialogue.turns if turn.role == "policy"]
    assert len(thoughts) == 3 and all(thought and thought.startswith("Ava Li: BLEU") for thought in thoughts)
    known = [thought.count("?") for thought in thoughts if thought]
    assert known[0] > known[1] > known[2], "each question fills a cell, or marks it as asked in vain"


@pytest.mark.parametrize("planner", ["solver", "player"])
def test_short_rules_replace_only_the_policys_prompt(planner: str) -> None:
    state = next(generate_games(1, GAME))
    env, full = (MatchingEnv(planner=planner, rules=rules) for rules in ("short", "full"))  # type: ignore[arg-type]
    for each in (env, full):
        each.reset(state)
    rules, table = env.prompt(0)
    assert table["content"].replace("\n- ", "\n") == full.prompt(0)[1]["content"]
    assert all(f"- {name}: " in table["content"] for name in state.roster.reviewers), (
        "a space before each, as in a question"
    )
    assert rules["role"] == "system" and len(rules["content"]) < 0.5 * len(full.prompt(0)[0]["content"])
    assert {"[message]", "[propose]"} <= set(rules["content"].split())
    assert ("a line for every paper" in rules["content"]) is (planner == "player"), "a solver's plan is not written out"
    assert env.get_prompt_prefix(1) == full.get_prompt_prefix(1), "a chat partner reads all rules"
