"""Credit by the turn: shaping moves no total, failed dialogues have no say."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.training_reward import by_token, make_training_reward
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import GameState, best_assignment
from slim_rl.games.matching.study.credit import expected_gains, state_values
from slim_rl.lab.credit import TurnCredit, TurnRewards, expected_rewards, returns, shaped, turn_advantages
from slim_rl.measured import Gain

_SHARE = st.floats(0, 1)
_VALUES = st.lists(_SHARE, min_size=1, max_size=6)


def dealt(seed: int, *overrides: str, n: int = 3) -> tuple[Config, GameState, list[Pair]]:
    """A config, a game of it, and the pairs whose scores the policy does not see; the partner sees all."""
    config = parse_config({"game": {"n": n, "scales": False, "p_observed_2": 1.0, "hardness": 0}}, overrides)
    (game,) = generate_games(1, config.game, seed)
    return config, game, [(r, p) for r in range(n) for p in range(n) if not game.mask(0)[r][p]]


def turns_of(config: Config, dialogue: Dialogue, reward: float) -> list[float]:
    made = make_training_reward(config)
    assert isinstance(made, TurnCredit)
    return made.turns(dialogue, reward).turns


def paid(group: str, reward: float | None, values: list[float], decay: float = 1.0) -> TurnRewards:
    turns = [] if reward is None else shaped(reward, values)
    return TurnRewards(group, turns, [decay] * len(turns))


@settings(max_examples=50, deadline=None)
@given(_SHARE, _VALUES)
def test_turn_credits_sum_to_reward_minus_known_value(reward: float, values: list[float]) -> None:
    assert returns(shaped(reward, values), [1.0] * len(values)) == pytest.approx([reward - before for before in values])
    alone = returns(shaped(reward, values), [0.0] * len(values))
    assert alone == pytest.approx([after - before for before, after in zip(values, [*values[1:], reward], strict=True)])
    assert sum(alone) == pytest.approx(reward - values[0])


def test_question_cost_is_subtracted_from_its_turn() -> None:
    """Two questions at 0.05, and a plan that earns 0.9: by itself each turn has its own price, and all together what was paid."""
    asking = [Turn("?", 0, "policy", {"kind": "message"}, questions=["pair"], seeking=True)] * 2
    turns = [*asking, Turn("[propose]", 0, "policy", {"kind": "propose"}, questions=[])]
    dialogue = Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns, reward=0.9)

    def given(reward: float, **arguments: Any) -> list[float]:
        train = {"reward": "turn_credit", "reward_args": {"price": 0.05, **arguments}}
        config = parse_config({"environment": "tests.backends.paid_batch.Known", "train": train})
        return turns_of(config, dialogue, reward)

    assert given(0.8) == pytest.approx([0.05, 0.05, 0.7])  # state values 0, 0.1 and 0.2
    assert given(0.8, of="shuffled") == pytest.approx([0.1, 0.1, 0.6])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | _SHARE, _VALUES), min_size=1, max_size=8), _SHARE)
def test_group_baseline_excludes_failed_dialogues(rows: list[Any], decay: float) -> None:
    group = [paid("a", *row, decay) for row in rows]
    found = turn_advantages(group, scale=False)
    assert [len(each) for each in found] == [0 if reward is None else len(values) for reward, values in rows]
    assert sum(each[0] for each in found if each) == pytest.approx(0, abs=1e-9)
    among_others = turn_advantages([paid("b", 1.0, [0.0]), *group, paid("b", 0.0, [0.3])], scale=False)
    assert among_others[1:-1] == found
    assume(sum(reward is not None for reward, _ in rows) > 1)
    played = [each for each in group if each.turns]
    assert turn_advantages(played, scale=False) == [each for each in found if each]


def test_where_there_is_nothing_to_compare_there_is_no_advantage() -> None:
    assert turn_advantages([paid("a", 0.7, [0.5, 0.5]), paid("a", 0.7, [0.5])]) == [[0.0, 0.0], [0.0]]
    assert turn_advantages([paid("a", 0.7, [0.5, 0.6]), paid("a", None, [])]) == [[0.0, 0.0], []]
    silent = [paid("a", 0.0, []), paid("a", 1.0, [0.5]), paid("a", 0.0, [0.5])]
    assert turn_advantages(silent, scale=False) == [[], [0.5], [-0.5]], "without a turn it has no say"


def test_a_turns_tokens_have_its_advantage_and_no_others() -> None:
    turns = [Turn("a", 0, "policy", span=(0, 2)), Turn("b", 1, "partner"), Turn("c", 0, "policy", span=(4, 5))]
    dialogue = Dialogue("d", "g", 0, 0, {}, {}, {}, turns=turns)
    assert by_token(dialogue, [0.5, -1.0], 6) == [0.5, 0.5, 0.0, 0.0, -1.0, 0.0]
    assert by_token(dialogue, [], 3) == [0.0, 0.0, 0.0], "a failed one has none"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.05))
def test_question_credit_is_expected_not_realised_gain(seed: int, price: float) -> None:
    """Compared with what a question drawn at random promises. Asked about again a pair promises nothing; a plan that is not agreed on is paid
    what it earned above its promise.
    """
    train = f"train={{reward: expected_credit, reward_args: {{decay: 0, price: {price}}}}}"
    config, game, pairs = dealt(seed, train)
    assume(pairs)
    dialogue = answered(game, [pairs[0], pairs[0]])
    turns = turns_of(config, dialogue, (dialogue.reward or 0.0) - 2 * price)
    knows = Knowledge(game, 0)
    promised, baseline = knows.expected_value[pairs[0]], knows.expected_value.sum() / len(pairs)
    knows.update([pairs[0]])
    left = knows.expected_value.sum() / max(1, len(pairs) - 1)
    assert turns[:2] == pytest.approx([promised - price - baseline, -price - left])
    assert turns[2] == pytest.approx(dialogue.reward - state_values(dialogue)[2] - left)


def test_a_question_without_an_answer_is_paid_nothing() -> None:
    """However many pairs it names, whose best would promise more: a shy partner would rather be asked about one."""
    _, game, pairs = dealt(0)
    dialogue = answered(game, pairs[:1])
    (question, _) = expected_gains(dialogue)
    assert question.expected == Knowledge(game, 0).expected_value[pairs[0]] > 0
    names = " and ".join(game.roster.pair(pair) for pair in pairs[:3])
    dialogue.turns[0].text, dialogue.turns[1].text = f"[message] What are {names}?", "[message] Ask me about one pair."
    annotate(dialogue)
    assert len(dialogue.turns[0].pairs or []) == 3
    assert [gain.expected for gain in expected_gains(dialogue)] == [0.0, None]


# Messages about three pairs and the replies to them => the pairs whose promise each question is credited with
CREDITED = """
Now that {a} is settled, what is {k}? | {k}: {vk}. => -
What are {a}, {b} and {c}? | Ask me about one pair. | What is {a}? | {a}: {va}. => - a
What are {a} and {b}? | {a}: {va}. | What is {b}? | {b}: {vb}. => a b
What is {a}? | {a}: {va}. | What is {a}? | {a}: {va}. => a -
What is {a}? | I have no score for {a}. | What is {a}? | {a}: {va}. => - a
Is {a} 50? | Yes. {a}: 50. | What is {a}? | {a}: {va}. => - a
"""


@pytest.mark.parametrize("line", CREDITED.strip().splitlines())
def test_expected_gains_unanswered_pair_credits_nothing(line: str) -> None:
    messages, _, credited = line.partition(" => ")
    _, game, pairs = dealt(1, n=4)
    unknown = [(r, p) for r, p in pairs if game.table[r][p] != 50]
    known = next((r, p) for r in range(4) for p in range(4) if game.mask(0)[r][p])
    named = dict(zip("abck", [*unknown[:3], known], strict=True))
    words = {name: game.roster.pair(pair) for name, pair in named.items()}
    words |= {f"v{name}": str(game.table[r][p]) for name, (r, p) in named.items()}
    dialogue, knows, expected_gain = answered(game, []), Knowledge(game, 0), []
    dialogue.turns[:0] = [
        Turn(f"[message] {text.format(**words)}", number % 2, ("policy", "partner")[number % 2], {"kind": "message"})
        for number, text in enumerate(messages.split(" | "))
    ]
    annotate(dialogue)
    for name in credited.split():
        expected_gain.append(knows.expected_value[named[name]] if name in named else 0.0)
        knows.update([named[name]] if name in named else [])
    assert [gain.expected for gain in expected_gains(dialogue)][:-1] == pytest.approx(expected_gain)
    assert max(expected_gain) > 0 or credited == "-"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(3)))
def test_plan_credit_is_expected_not_realised_score(seed: int, plan: list[int]) -> None:
    """The best plan by what was known nothing, another one what it was expected to earn less; a plan that was not agreed on what it got."""
    config, game, _ = dealt(seed, "train={reward: expected_credit, reward_args: {decay: 0}}")
    values = [[game.table[r][p] if game.mask(0)[r][p] else 50 for p in range(3)] for r in range(3)]
    (best, most), most_of_all = best_assignment(values), game.best_assignment_reward
    dialogue = answered(game, [])
    baseline = expected_gains(dialogue)[0].baseline
    for proposed, less in (best, 0.0), (plan, most - sum(values[r][plan[r]] for r in range(3))):
        dialogue.turns[-1].action = {"kind": "propose", "assignment": list(proposed)}
        dialogue.stop_reason, dialogue.reward = StopReason.AGREED, game.score(tuple(proposed)) / most_of_all
        assert turns_of(config, dialogue, dialogue.reward) == pytest.approx([-less / most_of_all - baseline])
    dialogue.stop_reason, dialogue.reward = StopReason.MAX_TURNS, 0.0
    assert turns_of(config, dialogue, 0.0) == pytest.approx([-most / most_of_all - baseline])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(_SHARE, _SHARE, _SHARE), min_size=1, max_size=6))
def test_credit_subtracts_the_baseline_of_each_turn(rows: list[tuple[float, float, float]]) -> None:
    turns, usual, decays = map(list, zip(*rows, strict=True))
    less = [earned - each for earned, each in zip(returns(turns, decays), usual, strict=True)]
    gains = [Gain(None, each) for each in usual]
    assert returns(expected_rewards(turns, [0.0] * len(turns), gains, decays), decays) == pytest.approx(less)


@pytest.mark.parametrize("kind", ["turn_credit", "expected_credit"])
def test_invalid_turn_is_credited_with_what_follows_at_any_decay(kind: str) -> None:
    """A repaired plan costs an invalid turn nothing, a failure costs it the game; a valid question is credited with its answer only."""
    config, game, (pair, *_) = dealt(5, f"train={{reward: {kind}, reward_args: {{decay: 0}}, scale_rewards: false}}")
    credit = make_training_reward(config)
    repaired, failed = answered(game, [pair]), answered(game, [pair])
    invalid = Turn("[propose]", 0, "policy", error="no plan")
    repaired.turns.insert(-1, invalid)
    failed.turns[-1:] = [invalid, replace(invalid)]
    repaired.reward, failed.reward, failed.stop_reason = 1.0, 0.0, StopReason.POLICY_ERRORS
    advantages = credit([repaired, failed], 0).advantages
    assert advantages is not None
    (question, fine, plan), (question_too, lost, last) = advantages
    assert question == pytest.approx(question_too)
    assert (fine, lost) == (pytest.approx(plan), pytest.approx(last))
    assert last < plan - 0.4


def test_expected_credit_equals_realised_credit_on_average() -> None:
    """Over what a pair's score may be, 0 to 100, in points: shares are of the best, which the score may move."""
    config, game, (pair, *_) = dealt(3, "train.reward=turn_credit")
    found = []
    for score in range(101):
        table = [list(row) for row in game.table]
        table[pair[0]][pair[1]] = score
        best = int(best_assignment(table)[1])
        dialogue = answered(replace(game, table=tuple(map(tuple, table)), best_assignment_reward=best), [pair])
        found.append(best * turns_of(config, dialogue, dialogue.reward or 0.0)[0])
    promised = game.best_assignment_reward * Knowledge(game, 0).expected_value[pair]
    assert sum(found) / len(found) == pytest.approx(promised, abs=0.1)


def answered(game: GameState, pairs: list[Pair]) -> Dialogue:
    """The policy asks about each pair, is told its score, and proposes."""
    turns = []
    for pair in pairs:
        name = game.roster.pair(pair)
        turns.append(Turn(f"[message] What is {name}?", 0, "policy", {"kind": "message"}))
        turns.append(Turn(f"[message] {name}: {game.table[pair[0]][pair[1]]}.", 1, "partner", {"kind": "message"}))
    turns.append(Turn("[propose]", 0, "policy", {"kind": "propose"}))
    dialogue = Dialogue("d", "g", 0, 0, game.to_dict(), {}, {}, turns=turns, reward=0.9)
    annotate(dialogue)
    return dialogue
