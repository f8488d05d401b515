"""The game as a Gymnasium environment of text: `gymnasium.make("slim_rl_gymnasium:slim_rl/Matching-v0")`.

    the same seed of `reset` is the same game, and the same words in it get the same answers and the same reward

The reward comes when the game is over. A game that failed (the partner's endpoint is down, say) is truncated with reward 0, and
``info["failure"]`` says why: leave it out of any average. `close` an environment after use. In an `AsyncVectorEnv`, pass
``shared_memory=False``: Gymnasium's shared memory does not carry text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
from gymnasium.spaces import Text

from slim_rl.config import Config
from slim_rl.dialogue.games_file import GameRow, Split
from slim_rl.session import Games, Observation, metrics, wait

ID = "slim_rl/Matching-v0"
_PRINTABLE = "".join(chr(code) for code in range(32, 127)) + "\n"


class TextSpace(Text):
    """Any text of up to `max_length` characters; samples are of printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=_PRINTABLE)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class GymnasiumEnv(gymnasium.Env[str, str]):
    """One seat of a game, the partner's moves included.

    Args:
        config: as in `slim_rl.session.Games`; any game of a config, not the matching game only.
        split: whether the games drawn are training or held-out ones.
        options: `partner`, `overrides` and `log`, as there.

    `reset` takes ``options={"row": GameRow}`` for a certain game. Its observation is the whole prompt, that of `step` what the
    other seat, or the game, says. `info` holds ``messages`` (the same as chat messages), ``error`` (why the game refused what was
    said) and, once the game is over, ``stop_reason``, ``failure`` and ``metrics``.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any] | None = None,
        *,
        split: Split = "train",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.games = Games(config, scope="gymnasium", **options)
        self.session, self.split, self.render_mode = self.games.session(), split, render_mode
        self.observation_space, self.action_space = TextSpace(100_000), TextSpace(10_000)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        game, number = (int(drawn) for drawn in self.np_random.integers(2**31, size=2))
        row: GameRow | None = (options or {}).get("row")
        if row is None:
            (row,) = self.games.deal(self.split, 1, game)
        seen = wait(self.session.reset(row, number, self.split))
        return seen.text, self._info(seen)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        seen = wait(self.session.step(action))
        failed = seen.done and seen.reward is None
        return seen.text, seen.reward or 0.0, seen.done and not failed, failed, self._info(seen)

    def close(self) -> None:
        wait(self.session.leave())

    def _info(self, seen: Observation) -> dict[str, Any]:
        info: dict[str, Any] = {"messages": [dict(message) for message in seen.messages], "error": seen.error}
        dialogue = self.session.dialogue
        if seen.done and dialogue is not None:
            stop_reason = str(dialogue.stop_reason)
            info |= {"stop_reason": stop_reason, "failure": dialogue.failure, "metrics": metrics(dialogue)}
        return info


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:GymnasiumEnv")
