"""3×3 games of a small model on one thread, for benchmarks of sampling."""

from dataclasses import dataclass
from typing import Any

import torch

from slim_rl.config import PolicyConfig, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.environment import make_environment
from slim_rl.games.matching.generate import generate_games
from slim_rl.policies.transformers import TransformersPolicy, load_model


@dataclass(frozen=True, slots=True)
class SmallGames:
    """Model, and dialogues for it to play."""

    model: Any
    tokenizer: Any
    chat: Chat
    worker: RolloutWorker
    specs: list[DialogueSpec]

    def policy(self, seed: int) -> TransformersPolicy:
        """Returns the project's policy of the model."""
        policy = TransformersPolicy(self.model, self.chat.stop_ids, pad_id=self.tokenizer.pad_token_id)
        policy.reseed(seed)
        return policy


def small_games(path: str, number: int) -> SmallGames:
    """Returns the model at `path`, and `number` dialogues to play."""
    torch.set_num_threads(1)
    config = parse_config(
        {
            "game": {"n": 3, "scales": False, "rules": "none"},
            "partner": {"args": {"accept_fraction": 0}},
            "limits": {"turn_tokens": 64},
        }
    )
    model, tokenizer = load_model(PolicyConfig(model=path))
    chat = Chat(tokenizer)
    worker = RolloutWorker(config, chat)
    env = make_environment(worker.config)
    games = generate_games(number, config.game)
    return SmallGames(model, tokenizer, chat, worker, [worker.spec(GameRow.of(env, g.id, g), "bench") for g in games])
