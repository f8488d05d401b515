"""verl's agent loop over the rollout worker. The response mask is the dialogue's loss mask: 1 on the policy's
own tokens and only there.

A dialogue that failed gives verl nothing (an empty list of outputs): it is logged, and no part of it reaches the batch or its
group's baseline.
"""

import functools
import logging
import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from slim_rl.backends.verl.data import read_game_state
from slim_rl.backends.verl.policy import ServerPolicy
from slim_rl.backends.verl.settings import STOP_MARK
from slim_rl.config import Limits, load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import DialogueLog, annotate_beside
from slim_rl.dialogue.measures import measures, of_partner, tracked
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.files import write_atomically
from slim_rl.runs import RunFolder

logger = logging.getLogger(__name__)


@dataclass
class Process:
    """State that all dialogues of a worker process share."""

    chat: Chat
    worker: RolloutWorker
    log: DialogueLog
    folder: Path


@functools.cache
def process_of(path: str, tokenizer: Any) -> Process:
    """Returns the shared state of a run in this process. Each process writes a log file of its own."""
    # Logs are read in the order of their names, and of a dialogue that a restarted run plays again the later line counts.
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    config = load_config(path)
    chat = Chat(tokenizer, config.policy.thinking)
    folder = Path(path).parent
    log = RunFolder(config, folder).logs / f"verl-{started}-{socket.gethostname()}-{os.getpid()}.jsonl"
    worker = RolloutWorker(config, chat)
    worker.keep_spend(folder)
    return Process(chat, worker, DialogueLog(log, tokens=config.log.tokens), folder)


class DialogueLoop(AgentLoopBase):
    """Agent loop that plays the row's game: the policy on the row's seat, the config's partner on the other.

    In self-play the policy plays both, and each seat's view is a separate output.

    verl's grpo compares sessions by their last output and gives its advantage to the others. Since both seats share the game's reward,
    that is each seat's advantage over its own seat's baseline, exactly. Other estimators compare all outputs of a game.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process = process_of(self.config.slim_rl.config, self.tokenizer)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Plays the row's game. Returns a list of outputs, empty if it failed."""
        policy = self._policy(sampling_params)
        dialogues = await self._play(policy, row)
        await annotate_beside(dialogues)
        for dialogue in dialogues:
            self._log(dialogue)
        return [self._output(d, policy) for d in dialogues if self._is_playable(d)]

    async def _play(self, policy: ServerPolicy, row: Mapping[str, Any]) -> list[Dialogue]:
        extra, step = row["extra_info"], row.get("global_steps")
        split = str(extra.get("split", "train"))
        game = GameRow(extra["game_id"], int(extra["seat"]), read_game_state(extra), [])
        scope = f"{split}-{row['uid'] if step is None else step}"  # a uid is used in one step only
        session = row.get("session_id", 0)
        if step is not None:  # verl counts its steps from 1
            step = int(step) - (split == "train")
        spec = self.process.worker.spec(game, scope, session, phase=split, step=step, group=str(row["uid"]))
        return await self.process.worker.play(spec, policy=policy, limits=self._limits())

    def _policy(self, sampling_params: Mapping[str, Any]) -> ServerPolicy:
        identity = {
            "engine": f"verl-{self.rollout_config.name}",
            "model": str(self.config.actor_rollout_ref.model.path),
            "temperature": sampling_params.get("temperature"),
            "top_p": sampling_params.get("top_p"),
        }
        return ServerPolicy(self.server_manager, sampling_params, self.process.chat.stop_ids, identity)

    def _limits(self) -> Limits:
        """Returns the config's limits, within the size of verl's batch."""
        rollout = self.rollout_config
        longest = int(rollout.prompt_length) + int(rollout.response_length)
        limits = self.process.worker.config.limits
        return limits.within(dialogue_tokens=int(rollout.response_length), context_tokens=longest)

    def _is_playable(self, dialogue: Dialogue) -> bool:
        """Returns True if the dialogue can be trained on: not failed, with a policy turn, and its prompt fits verl's."""
        if dialogue.failed or not dialogue.response_ids:
            return False
        length, most = len(dialogue.prompt_ids), self.rollout_config.prompt_length
        if length > most:
            sentence = "%s is not trained on: its prompt has %d tokens, and verl.prompt_tokens is %d; raise it."
            logger.warning(sentence, dialogue.id, length, most)
        return length <= most

    def _log(self, dialogue: Dialogue) -> None:
        self.process.log.append(dialogue)
        if dialogue.failed:
            logger.warning("%s: %s (%s)", dialogue.id, dialogue.stop_reason, dialogue.failure)
            if why := Failures([dialogue]).stopped:
                write_atomically(self.process.folder / STOP_MARK, why)

    def _output(self, dialogue: Dialogue, policy: ServerPolicy) -> AgentLoopOutput:
        partner_seconds = sum(turn.seconds for turn in dialogue.turns if turn.seat != dialogue.seat)
        worker, row = self.process.worker, measures(dialogue)
        shown = {name: name for name in tracked(dialogue.environment) if name != "reward"}  # verl has its own
        mixed = of_partner(str(dialogue.partner.get("kind"))) if len(worker.config.members) > 1 else {}
        extra = {name: float(row[measure]) for names in (shown, mixed) for measure, name in names.items()}
        return AgentLoopOutput(
            prompt_ids=dialogue.prompt_ids,
            response_ids=dialogue.response_ids,
            response_mask=dialogue.loss_mask,
            response_logprobs=dialogue.logprobs,
            reward_score=worker.training_reward.reward(dialogue) if dialogue.phase == "train" else dialogue.reward,
            num_turns=len(dialogue.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=policy.seconds, tool_calls=partner_seconds, num_preempted=policy.preempted
            ),
            extra_fields={
                "min_global_steps": min(policy.versions, default=0),
                "max_global_steps": max(policy.versions, default=0),
                # verl averages them, without None
                "reward_extra_info": {name: None if math.isnan(number) else number for name, number in extra.items()},
            },
        )
