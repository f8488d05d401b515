"""The game for verifiers: a taskset of games, an environment that plays one, and a harness that is a plain chat.

    one task is one game; one episode is one dialogue, and its trace holds the dialogue's reward and measures

The package `environments/slim_rl_matching` registers them with verifiers. A game that failed fails its episode, which
verifiers may retry, and leaves no reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import verifiers.v1 as vf
from verifiers.v1.dialects import parse_message
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE

from slim_rl.adapters.session import Games, Session, metrics
from slim_rl.dialogue.record import StopReason
from slim_rl.dialogue.rows import GameRow


class GameData(vf.TaskData):
    """A game: a row of a games file."""

    row: dict[str, Any]


class GameTask(vf.Task[GameData]):
    """A game to be played."""


class GameTasksetConfig(vf.TasksetConfig):
    """Which games, and against whom (see `slim_rl.adapters.session.Games`)."""

    config: Path | None = None
    """A config of slim_rl; None: the default matching game."""
    partner: str | None = None
    """Who sits opposite, in place of the config's `partner.kind`."""
    num_games: int = 100
    split: Literal["train", "eval"] = "train"
    """Training or held-out games."""
    overrides: list[str] = []  # noqa: RUF012  pydantic copies it
    """Changes of the config, such as `game.n=3`."""
    log: Path | None = None
    """File that each dialogue is appended to; one process writes it."""


class GameTaskset(vf.Taskset[GameTask, GameTasksetConfig]):
    """The games of a config."""

    def __init__(self, config: GameTasksetConfig) -> None:
        super().__init__(config)
        partner, overrides, log = config.partner, config.overrides, config.log
        self.games = Games(config.config, partner=partner, overrides=overrides, log=log, scope="verifiers")

    def load(self) -> Iterator[GameTask]:
        for row in self.games.deal(self.config.split, self.config.num_games):
            system, rest = _parted(row.prompt)
            data = GameData(name=row.name, system_prompt=system, prompt=rest, row=row.to_dict())
            yield GameTask(data, self.config.task)


class ChatHarnessConfig(vf.HarnessConfig):
    """Nothing to set."""


class ChatHarness(vf.Harness[ChatHarnessConfig]):
    """A conversation without tools, in this process: one request to the model a turn. It needs no sandbox."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages += [message_to_wire(message) for message in prompt or ()]
        try:
            async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
                await client.chat.completions.create(model=ctx.model, messages=messages)
        except openai.APIConnectionError as error:
            return vf.ProgramResult(MODEL_TRANSPORT_ERROR_EXIT_CODE, "", str(error))
        except openai.APIError as error:  # the trace has what the model's endpoint said
            return vf.ProgramResult(1, "", str(error))
        return vf.ProgramResult(0, "", "")


class VerifiersEnvConfig(vf.EnvConfig):
    """One seat, the policy's; the partner belongs to the game."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class VerifiersEnv(vf.Env[VerifiersEnvConfig]):
    """Plays the task's game."""

    taskset: GameTaskset

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        session = self.taskset.games.session()
        try:
            await self._play(session, task, agents)
        finally:
            await session.leave()

    async def _play(self, session: Session, task: vf.Task, agents: vf.Agents) -> None:
        seen = await session.reset(GameRow.from_dict(task.data.row), phase=self.taskset.config.split)
        opening = _parted(seen.messages)[1]  # the partner's first words included
        async with agents.player.interaction(task.with_data(prompt=opening)) as player:
            trace, heard = player.trace, await player.turn()
            while not (heard.terminated or seen.done):
                said, call = trace.assistant_messages[-1], trace.calls[-1]
                cut = call.finish_reason == "length"
                seen = await session.step(said.content or "", thought=said.reasoning_content, cut=cut)
                if not seen.done:
                    heard = await player.turn(seen.text)
            if not seen.done:  # the rollout ended before the game
                failed = StopReason.DEADLINE if trace.is_timeout else StopReason.ENGINE_FAILED
                reason = StopReason.DIALOGUE_TOKENS if trace.is_truncated and not trace.errors else failed
                seen = await session.leave(reason, trace.stop_condition or "the rollout ended")
            dialogue = session.dialogue
            assert dialogue is not None
            trace.info |= {"dialogue": dialogue.id, "stop_reason": str(dialogue.stop_reason)}
            if seen.reward is not None:
                trace.record_reward("reward", seen.reward)
                trace.record_metrics(metrics(dialogue))
            elif not trace.errors:
                raise vf.EnvError(f"the game failed ({dialogue.stop_reason}): {dialogue.failure}")


def _parted(messages: Any) -> tuple[str | None, list[vf.Message]]:
    """The system prompt, and the other messages as verifiers' own."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    return "\n\n".join(system) or None, [parse_message(message) for message in messages if message["role"] != "system"]
