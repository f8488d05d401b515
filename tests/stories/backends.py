"""One step of a game on each backend, as its own rollout code plays it; each function returns what the trainer's tracker is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.games_file import load_rows
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


def after(replies: Sequence[str]) -> str:
    """Returns the policy's turn after the keeper's replies: it asks both questions, then knows the position."""
    if len(replies) < 2:
        return ("Is it odd?", "Is it high?")[len(replies)]
    return str({("yes", "no"): 1, ("no", "no"): 2, ("yes", "yes"): 3, ("no", "yes"): 4}[tuple(replies)])  # type: ignore[index]


def opens(text: str) -> str:
    """Returns its turn for the text that it reads."""
    return after([part.partition("<")[0] for part in text.split("<|im_start|>user\n")[2:]])


STORY = Story(GAME, {"kind": "keeper"}, {}, opens)


def by(trainer: Callable[..., Played]) -> Callable[..., dict[str, Any]]:
    """What the trainer's tracker is given of two dialogues."""

    def play(story: Story, tokenizer: Any, folder: Path) -> dict[str, Any]:
        scene = Scene(SCENE | story.settings, load_rows(story.config(folder))[0], story.speak)
        return trainer(scene, tokenizer, folder, size=2).tracked

    return play


by_trl, by_slime, by_verl = map(by, (played.trl, played.slime, played.verl))
BACKENDS = (by_trl, by_slime, by_verl)
