"""One step of a game on each backend, as its own rollout code plays it; each function returns what the trainer's tracker is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import Policy, Sampled
from slim_rl.dialogue.worker import RolloutWorker

GAME = "lock.Lock"


@dataclass(frozen=True)
class Story:
    """A game, and a policy that speaks by what it reads."""

    environment: str
    partner: dict[str, Any]
    game: dict[str, Any]
    speak: Callable[[str], str]

    @property
    def settings(self) -> dict[str, Any]:
        return {"environment": self.environment, "partner": self.partner, "game": self.game}

    def config(self, folder: Path) -> Config:
        data = {"train": str(folder / "train.jsonl"), "num_train": 6}
        limits = {"turn_tokens": 128, "dialogue_tokens": 1024}
        return parse_config({"name": "story", **self.settings, "data": data, "limits": limits})


def opens(text: str) -> str:
    """Returns the policy's turn for what it read: it asks both questions, then knows the position."""
    replies = [part.partition("<")[0] for part in text.split("<|im_start|>user\n")[2:]]
    if len(replies) < 2:
        return ("Is it odd?", "Is it high?")[len(replies)]
    return str({("yes", "no"): 1, ("no", "no"): 2, ("yes", "yes"): 3, ("no", "yes"): 4}[tuple(replies)])  # type: ignore[index]


STORY = Story(GAME, {"kind": "keeper"}, {}, opens)


class Asks(Policy):
    """A policy whose turn is a function of the text that it reads."""

    identity: ClassVar[dict[str, Any]] = {"engine": "script"}

    def __init__(self, chat: Chat, says: Callable[[str], str]) -> None:
        self.chat, self.says = chat, says

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        ids = self.chat.said_ids(self.says(self.chat.tokenizer.decode(input_ids)))
        return Sampled(ids, [-0.5] * len(ids), "stop")

    def reseed(self, seed: int) -> None:
        """It draws nothing."""


def by_trl(story: Story, tokenizer: Any, tokenizer_dir: Path, folder: Path) -> dict[str, Any]:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.rollouts import Rollouts

    chat, config = Chat(tokenizer), story.config(folder)
    policy: Any = Asks(chat, story.speak)
    with DialogueLog(folder / "log.jsonl") as log:
        rollouts = Rollouts(RolloutWorker(config, chat, policy), policy, load_rows(config), log)
        trainer: Any = SimpleNamespace(
            state=SimpleNamespace(global_step=1), accelerator=SimpleNamespace(process_index=0)
        )
        rollouts(rollouts.names()[:1] * 2, trainer)
    return rollouts.metrics


def by_slime(story: Story, tokenizer: Any, tokenizer_dir: Path, folder: Path) -> dict[str, Any]:
    from tests.backends.slime_setup import Sample, make_args, run, sampling_params
    from tests.fakes.sglang_server import SGLangServer

    from slim_rl.backends.slime import log as metrics  # isort: skip
    from slim_rl.rollout import generate, log_rollout  # isort: skip

    chat, config, tracked = Chat(tokenizer), story.config(folder), dict[str, Any]()
    row = load_rows(config)[0]
    metadata = {"game_state": row.game_state, "game_id": row.game_id, "seat": row.seat}
    group = [
        Sample(group_index=0, index=i, prompt=row.prompt, metadata=dict(metadata), session_id=f"s{i}") for i in range(2)
    ]

    async def play(args: Any) -> list[Any]:
        return [await generate(args, sample, sampling_params(args)) for sample in group]

    with SGLangServer(lambda ids, rng: chat.said_ids(story.speak(tokenizer.decode(ids)))) as server:
        args = make_args(tokenizer_dir, server.port, folder, story.settings)
        samples = run(args, play(args))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics.logging_utils, "log", lambda args, found, **_: tracked.update(found))
        log_rollout(0, args, samples, {}, 1.0)
    return {name.removeprefix("dialogue/"): value for name, value in tracked.items()}


def by_verl(story: Story, tokenizer: Any, tokenizer_dir: Path, folder: Path) -> dict[str, Any]:
    pytest.importorskip("verl")
    from tests.backends.verl_setup import RLHFDataset, Server, make_run, play
    from tests.fakes.models import checkpoint

    _, verl = make_run(folder, checkpoint(folder / "model", tokenizer), story.settings)
    rows = [RLHFDataset(verl.data.train_files, tokenizer, verl.data)[0] | {"uid": "u"}]
    (output,) = play(verl, Server(tokenizer, story.speak), rows, n=1)["u_0"]
    found: dict[str, Any] = output.extra_fields["reward_extra_info"]
    return found


BACKENDS = (by_trl, by_slime, by_verl)
