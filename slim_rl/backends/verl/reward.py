"""The game's reward for an answer that no dialogue loop has scored: verl's single-turn mode.

    reward.reward_manager.source=importlib  .module.path=pkg://slim_rl.backends.verl.reward  .name=matching

The environment itself reads the answer. An answer that it cannot read is counted and gets reward 0; its meaning is never guessed.
"""

import functools
from math import isfinite
from typing import Any

from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from slim_rl.backends.verl.data import DATA_SOURCE, read_game_state
from slim_rl.config import load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.environment import BaseEnvironment, make_environment
from slim_rl.errors import ConfigError, DataError

_chat = functools.cache(Chat)


def score_answer(env: BaseEnvironment, state: Any, answer: str) -> tuple[float, str | None]:
    """Deals the game and takes one answer. Returns the normalised reward, and why the environment refused it (or None).

    Raises DataError if the reward is no number.
    """
    env.reset(state)
    _, _, info = env.step(answer)
    error = info.get("error")
    if error:
        return 0.0, error
    reward = float(env.get_normalized_reward())
    if not isfinite(reward):
        raise DataError(f"{type(env).__name__}.get_normalized_reward gave {reward}; it must be a finite number.")
    return reward, None


@register("matching")
class GameRewardManager(RewardManagerBase):
    """verl's reward manager of the run's environment; verl puts the score on the answer's last token.

    `unparsable` is 1 for an answer that the environment cannot read; verl averages it over a step.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        path = (config.get("slim_rl") or {}).get("config")
        if not path:
            raise ConfigError("The reward manager 'matching' needs the run's config: give verl +slim_rl.config=FILE.")
        self.game = load_config(path)
        self.chat = _chat(tokenizer, self.game.policy.thinking)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Scores the last of `data`'s rows (verl asks for one answer at a time)."""
        item = data[len(data) - 1]
        source = item.non_tensor_batch["data_source"]
        if not str(source).startswith(DATA_SOURCE):
            raise ConfigError(
                f"The reward manager 'matching' scores rows whose data_source begins with {DATA_SOURCE}, not {source}."
            )
        response = item.batch["responses"]
        length = int(item.batch["attention_mask"][-response.shape[-1] :].sum())
        answer, _ = self.chat.decode(response[:length].tolist())
        state = read_game_state(item.non_tensor_batch["extra_info"])
        reward, error = score_answer(make_environment(self.game), state, answer)
        return {"reward_score": reward, "reward_extra_info": {"unparsable": float(error is not None)}}


matching = GameRewardManager  # the name that source=importlib looks for
