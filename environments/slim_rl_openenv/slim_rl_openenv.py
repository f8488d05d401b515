"""The game behind an OpenEnv server, its client, and both as an environment of TRL's `GRPOTrainer(environment_factory=...)`.

    one WebSocket connection is one seat at one game at a time

OpenEnv's plain HTTP keeps nothing between two requests (each gets a new environment), so a game is played over its
WebSocket, as every OpenEnv client does.
"""

import json
import random
from functools import partial
from typing import Any

from fastapi import FastAPI
from openenv.core import EnvClient, create_app
from openenv.core.client_types import StepResult
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, State
from openenv.core.env_server.types import Observation as OpenEnvObservation
from pydantic import Field

from slim_rl.dialogue.games_file import GameRow, Split
from slim_rl.dialogue.record import StopReason
from slim_rl.session import Games, Observation, metrics, wait


class GameAction(Action):
    """What the policy does."""

    text: str = Field("", description="what it says, tag included")
    cut: bool = Field(False, description="the turn met its limit of tokens")
    leave: bool = Field(False, description="its tokens are used up: the game ends here")


class GameObservation(OpenEnvObservation):
    """What the policy is told. `reward` is 0 until the game is over, and None if it failed."""

    text: str = Field(description="first the prompt, then what the other seat or the game says")
    messages: list[dict[str, str]] = Field([], description="the same as chat messages")
    error: str | None = Field(None, description="why the game refused what was said")
    stop_reason: str | None = Field(None, description="why the game is over")
    failure: str | None = Field(None, description="what broke, if it did not end as a game does")
    metrics: dict[str, float] = Field({}, description="what the finished dialogue measures, questions among it")


class GameServer(Environment[GameAction, GameObservation, State]):
    """One seat at the games; the server makes one for each connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, games: Games, split: Split = "train") -> None:
        super().__init__()
        self.games, self.session, self.split = games, games.session(), split
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, row: dict[str, Any] | None = None, **_: Any
    ) -> GameObservation:
        """Deals the game of a seed (the same seed, the same game), of a row of a games file, or any."""
        seed = random.randrange(2**31) if seed is None else seed
        game = GameRow.from_dict(row) if row else self.games.deal(self.split, 1, seed)[0]
        self._state = State(episode_id=episode_id or game.name, step_count=0)
        return self._observation(wait(self.session.reset(game, phase=self.split)))

    def step(self, action: GameAction, timeout_s: float | None = None, **_: Any) -> GameObservation:
        self._state.step_count += 1
        if action.leave:
            return self._observation(wait(self.session.leave(StopReason.DIALOGUE_TOKENS, "the policy left the game")))
        return self._observation(wait(self.session.step(action.text, cut=action.cut)))

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        game = self.games.config.environment.rpartition(".")[2]
        return EnvironmentMetadata(name="slim_rl", description=f"{game}, partner {self.games.config.opposite.name}")

    def close(self) -> None:
        wait(self.session.leave())

    def _observation(self, seen: Observation) -> GameObservation:
        shown = GameObservation(
            text=seen.text, messages=list(seen.messages), error=seen.error, done=seen.done, reward=seen.reward
        )
        dialogue = self.session.dialogue
        if seen.done and dialogue is not None:
            shown.failure, shown.metrics = dialogue.failure, metrics(dialogue)
            shown.stop_reason = str(dialogue.stop_reason)
        return shown


def make_app(games: Games, split: Split = "train", max_sessions: int = 256) -> FastAPI:
    """The server: `uvicorn.run(make_app(Games("configs/matching.yaml")))`. At most `max_sessions` games at once."""
    make = partial(GameServer, games, split)
    app: FastAPI = create_app(make, GameAction, GameObservation, env_name="slim_rl", max_concurrent_envs=max_sessions)
    return app


class GameClient(EnvClient[GameAction, GameObservation, State]):
    """A connection to a server: `reset(seed=...)` or `reset(row=...)`, then `step(GameAction(text=...))`."""

    def _step_payload(self, action: GameAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[GameObservation]:
        ending = {"done": payload["done"], "reward": payload["reward"]}
        return StepResult(GameObservation(**payload["observation"], **ending), **ending)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


class TRLGame:
    """A game for TRL, by `environment_factory=partial(TRLGame, base_url)`: the policy speaks by calling the tool `say`, and TRL
    asks for the reward when it stops calling it.
    """

    _seen: StepResult[GameObservation]

    def __init__(self, base_url: str) -> None:
        self._client = GameClient(base_url).sync()

    def reset(self, **row: Any) -> str | None:
        """Deals the row's `game` (a games file's row, as JSON), else that of its `seed`, or any. Returns what the prompt did not tell."""
        if "game" not in row:
            self._seen = self._client.reset(seed=row.get("seed"))
            return self._seen.observation.text
        self._seen = self._client.reset(row=json.loads(row["game"]))
        return self._seen.observation.messages[-1]["content"].removeprefix(row["prompt"][-1]["content"]) or None

    def say(self, text: str) -> str:
        """Say something in the game, and hear what is said next.

        Args:
            text: What to say, in the form that the rules ask for.

        Returns:
            What the other player or the game says.
        """
        self._seen = self._client.step(GameAction(text=text))
        heard: str = self._seen.observation.text
        return f"{heard}\nThe game is over.".strip() if self._seen.done else heard

    def get_reward(self) -> float | None:
        """The game's reward; None, which TRL leaves out, for a game that failed. A game not played to its end ends here."""
        if not self._seen.done:
            self._seen = self._client.step(GameAction(leave=True))
        return self._seen.reward
