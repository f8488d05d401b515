"""One step of a game on each backend, as its own rollout code plays it; each function returns what the trainer's tracker is given."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.players import Policy, Sampled
from tests.backends import played
from tests.backends.played import Played, Scene

GAME = "tests.stories.lock.Lock"
SCENE = {"name": "story", "limits": {"turn_tokens": 128, "dialogue_tokens": 1024}}


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
        return parse_config({**SCENE, **self.settings, "data": data})


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


def by(trainer: Callable[..., Played]) -> Callable[..., dict[str, Any]]:
    """What the trainer's tracker is given of two dialogues."""

    def play(story: Story, tokenizer: Any, folder: Path) -> dict[str, Any]:
        scene = Scene(SCENE | story.settings, load_rows(story.config(folder))[0], story.speak)
        return trainer(scene, tokenizer, folder, size=2).tracked

    return play


by_trl, by_slime, by_verl = map(by, (played.trl, played.slime, played.verl))
BACKENDS = (by_trl, by_slime, by_verl)
