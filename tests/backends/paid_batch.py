"""One step's dialogues, as every trainer is given them: two groups of four, of unequal lengths; one failed, one was truncated."""

from dataclasses import replace
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.training_reward import TrainingReward, by_token, make_training_reward
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.study import MatchingInstrument
from slim_rl.measured import Gain

STEP = 3
CONTROLS: dict[str, dict[str, Any]] = {
    "game": {},
    "priced": {"reward": "price", "reward_args": {"price": 0.05}},
    "drawn": {"reward": "price", "reward_args": {"price": [0.0, 0.02, 0.05, 0.1]}},
    "agreed": {"reward": "agreed"},
    "tokens": {"reward": f"{__name__}.PerToken"},
    "shuffled": {"reward": "shuffled"},
    "shuffled_all": {"reward": "shuffled", "reward_args": {"zeros": True, "price": 0.05}},
    "turn": {"reward": "turn_credit"},
    "turn_priced": {"reward": "turn_credit", "reward_args": {"price": 0.05}},
    "turn_near": {"reward": "turn_credit", "reward_args": {"decay": 0.5, "of": "shuffled"}, "scale_rewards": False},
    "expected": {"reward": "expected_credit", "reward_args": {"decay": 0.5, "price": 0.05}},
}
BY_TURN = [name for name in CONTROLS if name.startswith(("turn", "expected"))]
BY_DIALOGUE = [name for name in CONTROLS if name not in BY_TURN]


class PerToken(TrainingReward):
    """The game's reward, minus a cost per token that the policy sampled, as a user's own class may have it."""

    as_game = False

    def reward(self, dialogue: Dialogue) -> float | None:
        return None if dialogue.reward is None else dialogue.reward - 0.02 * sum(dialogue.loss_mask)


class Known(MatchingEnv):
    """A game in which what is known is worth a tenth more with each of the policy's turns, of which less was expected."""

    instrument = f"{__name__}.Tenths"


class Tenths(MatchingInstrument):
    def state_values(self, dialogue: Any) -> list[float]:
        return [0.1 * number for number in range(sum(turn.role == "policy" for turn in dialogue.turns))]

    def expected_gains(self, dialogue: Any) -> list[Gain]:
        gains = [Gain(0.1 - value / 5, 0.05 - value / 10) for value in self.state_values(dialogue)]
        return [*gains[:-1], *(replace(last, expected=None) for last in gains[-1:])]


def run(control: str) -> dict[str, Any]:
    """A run's config, as a file has it."""
    train = {"games_per_step": 2, "group_size": 4, "micro_batch": 8, **CONTROLS[control]}
    return {"name": "paid", "seed": 5, "environment": f"{__name__}.Known", "game": {"n": 2}, "train": train}


def dialogues() -> list[Dialogue]:
    """The batch. A question is two tokens long and its answer three, a plan four."""
    outcomes = [(0.3, 1), (0.9, 3), (None, 2), (0.6, 0), (0.0, 2), (0.8, 1), (1.0, 2), (0.4, 4)]
    return [_dialogue(number, *outcome) for number, outcome in enumerate(outcomes)]


def _dialogue(number: int, reward: float | None, questions: int) -> Dialogue:
    turns, mask = [], []
    for _ in range(questions):
        span = (len(mask), len(mask) + 2)
        turns.append(Turn("?", 0, "policy", {"kind": "message"}, span=span, questions=["pair"], seeking=True))
        turns.append(Turn("5.", 1, "partner", {"kind": "message"}, questions=[], seeking=False))
        mask += [1, 1, 0, 0, 0]
    turns.append(Turn("[propose]", 0, "policy", {"kind": "propose"}, span=(len(mask), len(mask) + 4), questions=[]))
    mask += [1] * 4
    dialogue = Dialogue(f"train-{STEP}/g{number // 4}/0/{number % 4}", f"g{number // 4}", 0, number, {}, {}, {})
    dialogue.environment, dialogue.annotator_version = f"{__name__}.Known", Tenths.annotator_version
    dialogue.step, dialogue.group, dialogue.turns, dialogue.reward = STEP, f"{number // 4}", turns, reward
    ends = {None: StopReason.PARTNER_FAILED, 0.0: StopReason.DIALOGUE_TOKENS}
    dialogue.stop_reason = ends.get(reward, StopReason.AGREED)
    dialogue.prompt_ids, dialogue.response_ids = [1, 2, 3], list(range(10, 10 + len(mask)))
    dialogue.loss_mask, dialogue.logprobs = mask, [-0.5 * bit for bit in mask]
    return dialogue


def paid(config: Config) -> list[float | None]:
    """What the batch is paid."""
    return make_training_reward(config)(dialogues(), STEP).rewards


def token_advantages(config: Config) -> list[list[float]]:
    """With credit by the turn: the advantage of each token of the responses."""
    found = make_training_reward(config)(dialogues(), STEP).advantages
    assert found is not None
    return [by_token(d, turns, len(d.response_ids)) for d, turns in zip(dialogues(), found, strict=True)]


def samples() -> list[Any]:
    """The batch as slime's rollout leaves it: a failed game is one masked token."""
    return made_samples(dialogues())


def made_samples(dialogues: list[Dialogue], selfplay: bool = False) -> list[Any]:
    """The same of other dialogues; in self-play of the first seat's, and then of the second's."""
    from slime.utils.types import Sample

    made = []
    for index, dialogue in enumerate(dialogues):
        failed, record = dialogue.failed, dialogue.to_dict(tokens=dialogue.failed)
        sample = Sample(group_index=index // 4, index=index, metadata={"dialogue": record})
        sample.rollout_id = index % 4 if selfplay else None
        response = dialogue.response_ids[: 1 if failed else None]
        sample.tokens, sample.response_length = [*dialogue.prompt_ids, *response], len(response)
        sample.loss_mask = dialogue.loss_mask[: len(response)]
        sample.rollout_log_probs = dialogue.logprobs[: len(response)]
        sample.reward, sample.remove_sample = dialogue.reward or 0.0, failed
        cut = dialogue.stop_reason is StopReason.DIALOGUE_TOKENS
        ended = Sample.Status.TRUNCATED if cut else Sample.Status.COMPLETED
        sample.status = Sample.Status.FAILED if failed else ended
        made.append(sample)
    return made
