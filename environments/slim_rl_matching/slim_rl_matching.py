"""The games of a slim_rl config for verifiers: a taskset, an environment that plays one game, and a harness that is a plain chat.

    one task is one game; one episode is one game played by the rollout worker, and a trace is what one model lived of it

The trace of a trainable seat holds the dialogue's reward and measures. Opposite the policy sits the game's own partner, which leaves no
trace; a model of verifiers', whose trace is not trained on; or in self-play the policy, and both are.

A game that failed fails its episode, which verifiers may retry, and leaves no reward.
"""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import openai
import verifiers.v1 as vf
from verifiers.v1.dialects import parse_message
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE

from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.players import Partner, PartnerFailure, against
from slim_rl.dialogue.record import Dialogue, StopReason, Turn, Usage
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.partners.endpoint import Completion, Endpoint
from slim_rl.partners.openai_chat import OpenAIPartner
from slim_rl.session import Games, metrics

__all__ = ["ChatHarness", "GameTaskset", "VerifiersEnv", "load_environment"]  # by which verifiers finds them
ID = "slim-rl-matching"


class GameData(vf.TaskData):
    """A game: a row of a games file."""

    row: dict[str, Any]


class GameTask(vf.Task[GameData]):
    """A game to be played."""


class GameTasksetConfig(vf.TasksetConfig):
    """Which games, and against whom (see `slim_rl.session.Games`)."""

    config: Path | None = None
    """A config of slim_rl; None: `matching_offline`, the 8×8 game."""
    partner: str | None = None
    """Who sits opposite, in place of the config's `partner.kind`; `self`: self-play."""
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
        self.games = Games(
            config.config, partner=partner, overrides=overrides, log=log, scope="verifiers", selfplay=True
        )

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
    """The policy's seat, and the other one where a model plays it."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    opposite: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """With a `model` it plays the partner, in place of the game's own. In self-play it is the policy in seat 1."""


class VerifiersEnv(vf.Env[VerifiersEnvConfig]):
    """Plays the task's game."""

    taskset: GameTaskset

    async def setup(self, agents: vf.Agents) -> None:
        agents.opposite.trainable = self.taskset.games.config.selfplay

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        games, row = self.taskset.games, GameRow.from_dict(task.data.row)
        episode = games.worker.spec(row, games.scope, games.number(row), phase=self.taskset.config.split)
        async with AsyncExitStack() as stack:
            player, opposite = (_Conversation(each, task, stack) for each in (agents.player, agents.opposite))
            talks = {0: player, 1: opposite} if games.worker.selfplay else {row.seat: player}
            partner = self._partner(opposite) if self.config.opposite.model else None
            worker = RolloutWorker(games.config, None, partner=partner) if partner else games.worker
            dialogues = await worker.play(episode, policy=_Seats(talks))
            for dialogue in dialogues:
                games.keep(dialogue)
                _record(dialogue, talks[dialogue.seat])

    def _partner(self, talk: "_Conversation") -> Partner:
        """The game's chat partner, who asks an agent of verifiers' in place of an endpoint."""
        config = against(self.taskset.games.config, "openai")
        made: type[OpenAIPartner] = config.opposite.cls
        endpoint = cast(Endpoint, _AgentEndpoint(talk, self.config.opposite.model))
        return made(config.partner.openai, endpoint, **config.partner.args)


def _record(dialogue: Dialogue, talk: "_Conversation") -> None:
    """Writes what a seat earned onto its trace. Raises EnvError if the game failed, and not by a fault that the trace already tells."""
    trace = talk.trace
    if trace is not None:
        trace.info |= {"dialogue": dialogue.id, "stop_reason": str(dialogue.stop_reason)}
    if dialogue.reward is None:
        if trace is None or not trace.errors:
            raise vf.EnvError(f"the game failed ({dialogue.stop_reason}): {dialogue.failure}")
    elif trace is not None:
        trace.record_reward("reward", dialogue.reward)
        trace.record_metrics(metrics(dialogue))


class _Conversation:
    """One agent's chat in one game. It begins when the agent is first asked, since what it reads then may hold the other's words."""

    def __init__(self, agent: Any, task: vf.Task, stack: AsyncExitStack) -> None:
        self._agent, self._task, self._stack = agent, task, stack
        self._open: Any = None

    @property
    def trace(self) -> vf.Trace | None:
        return None if self._open is None else self._open.trace

    async def answer(self, messages: list[dict[str, str]]) -> tuple[vf.AssistantMessage, bool]:
        """What the agent says to a chat's last message, and whether it met its limit of tokens. The first time it reads the whole chat.

        Raises:
            PartnerFailure: the rollout is over; its reason is the policy's own limit, or a failure.
        """
        if self._open is None:
            system, rest = _parted(messages)
            task = self._task.with_data(system_prompt=system, prompt=rest)
            self._open = await self._stack.enter_async_context(self._agent.interaction(task))
            heard = await self._open.turn()
        else:
            heard = await self._open.turn(messages[-1]["content"])
        trace = self._open.trace
        if heard.terminated:
            failed = StopReason.DEADLINE if trace.is_timeout else StopReason.ENGINE_FAILED
            reason = StopReason.DIALOGUE_TOKENS if trace.is_truncated and not trace.errors else failed
            raise PartnerFailure(trace.stop_condition or "the rollout ended", reason)
        return trace.assistant_messages[-1], trace.calls[-1].finish_reason == "length"


class _Seats(Partner):
    """The policy, who plays one seat, or in self-play both, by a conversation each."""

    identity: ClassVar[dict[str, Any]] = {"kind": "external"}

    def __init__(self, seats: dict[int, _Conversation]) -> None:
        self._seats = seats

    async def act(self, view: View) -> Turn:
        talk = self._seats[view.seat]
        told = [{"role": "user", "content": view.observation}]
        chat = list(view.prompt) if talk.trace is None else told
        said, cut = await talk.answer(chat)
        text, aloud = split_thought(said.content or "")
        return Turn(text, thought=aloud or said.reasoning_content, cut=StopReason.TURN_TOKENS if cut else None)


class _AgentEndpoint:
    """As much of an `Endpoint` as a chat partner asks for in a game. A rollout that is over is the partner's failure, not the policy's."""

    stopped = None

    def __init__(self, talk: _Conversation, model: str | None) -> None:
        self._talk, self.identity = talk, {"model": model}

    async def ask(self, messages: list[dict[str, str]], seed: int) -> Completion:
        try:
            said, cut = await self._talk.answer(messages)
        except PartnerFailure as over:
            raise PartnerFailure(over.failure or "the partner's rollout ended") from over
        return Completion(said.content or "", "length" if cut else "stop", Usage(calls=1))


def _parted(messages: Any) -> tuple[str | None, list[vf.Message]]:
    """The system prompt, and the other messages as verifiers' own."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    return "\n\n".join(system) or None, [parse_message(message) for message in messages if message["role"] != "system"]


def load_environment(
    config: str | Path | None = None,
    partner: str | None = None,
    num_games: int = 100,
    split: Literal["train", "eval"] = "train",
    overrides: Sequence[str] = (),
    log: str | Path | None = None,
    **env: Any,
) -> vf.Env:
    """The environment, for programs that make it themselves.

    Args:
        config: a config of slim_rl; None: the default matching game.
        partner: who sits opposite, in place of the config's `partner.kind`: shy, forthcoming, mute, openai, ...
        num_games: how many games, one a task.
        split: training or held-out games.
        overrides: changes of the config, such as ``game.n=3`` or ``partner.openai.base_url=http://127.0.0.1:8100/v1``.
        log: file that each dialogue is appended to.
        env: further keys of verifiers' own `env` section, such as ``player={"max_turns": 8}``.
    """
    taskset = {"config": config, "partner": partner, "num_games": num_games, "split": split, "log": log}
    return vf.load_environment(
        vf.resolve_env_config({"taskset": {"id": ID, "overrides": list(overrides), **taskset}, **env})
    )
