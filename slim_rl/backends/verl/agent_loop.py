"""verl's agent loops over `play_dialogue` and `play_selfplay`. The response mask is the dialogue's loss mask: 1 on the policy's
own tokens and nowhere else.

A dialogue that failed gives verl nothing (an empty list of outputs): it is logged, and no part of it reaches the batch or its
group's baseline. verl's older trainer (trainer.use_v1=false) must be given one output a session; there a failed dialogue is a
row without trainable tokens, which the estimator `grpo_played` leaves out of the baseline (see `plugin`).
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from slim_rl.backends.verl.data import game_state
from slim_rl.backends.verl.groups import Groups
from slim_rl.backends.verl.policy import ServerPolicy
from slim_rl.config import Config, Limits, load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.loop import play_dialogue, play_selfplay
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import make_environment
from slim_rl.errors import ConfigError
from slim_rl.partners import make_partner
from slim_rl.seeds import seed_of

logger = logging.getLogger(__name__)

# A lone session of a group has a baseline in these, and none in the estimators that compare siblings.
WITHOUT_GROUPS = frozenset({"gae", "reinforce_plus_plus", "remax"})


@dataclass
class Table:
    """What all dialogues of one worker process share."""

    config: Config
    chat: Chat
    partner: Partner | None
    log: DialogueLog
    groups: Groups = field(default_factory=Groups)


@functools.cache
def lay_table(path: str, tokenizer: Any) -> Table:
    """The process's table for a run's config.yaml. Its log is a file of its own: one process, one writer."""
    config = load_config(path)
    two = make_environment(config).seats == 2 and config.partner.kind != "self"
    log = Path(path).parent / config.log.dir / f"verl-{socket.gethostname()}-{os.getpid()}.jsonl"
    return Table(
        config,
        Chat(tokenizer, config.policy.thinking),
        make_partner(config.partner) if two else None,
        DialogueLog(log, tokens=config.log.tokens),
    )


class DialogueLoop(AgentLoopBase):
    """Plays one game with the policy on the row's seat and the config's partner on the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = lay_table(self.config.slim_rl.config, self.tokenizer)
        self.one_output = not self.config.trainer.use_v1

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Plays the row's game. Returns a list of outputs, empty if it failed; under the older trainer always one output."""
        uid = str(row["uid"])
        group = await self.table.groups.enter(uid)
        played: list[AgentLoopOutput] = []
        try:
            policy = self._policy(sampling_params)
            dialogues = await self._play(policy, row)
            for dialogue in dialogues:
                self._log(dialogue, row)
            played = [self._output(d, policy) for d in dialogues if self._is_playable(d)]
        finally:
            group.leave(bool(played))
        if self.one_output:
            return played[0] if played else self._no_play(policy)
        await group.complete.wait()
        compares = self.config.algorithm.adv_estimator not in WITHOUT_GROUPS and _split(row) == "train"
        if compares and group.started > 1 and group.played == 1:
            logger.warning("group %s: one dialogue of %d was played; nothing to compare it with", uid, group.started)
            return []
        return played

    async def _play(self, policy: ServerPolicy, row: Mapping[str, Any]) -> Sequence[Dialogue]:
        extra, config = row["extra_info"], self.table.config
        dialogue = await play_dialogue(
            make_environment(config),
            policy,
            self.table.partner,
            self.table.chat,
            self._limits(),
            game_state=game_state(extra),
            id=self._id(row),
            game_id=extra["game_id"],
            seat=int(extra["seat"]),
            seed=seed_of(config.seed, self._id(row)),
            prompt=list(row["raw_prompt"]),
        )
        return [dialogue]

    def _id(self, row: Mapping[str, Any]) -> str:
        extra = row["extra_info"]
        # The older trainer tells neither: `priority` numbers the rows of its batch, and a uid is used in one step only.
        session, step = row.get("session_id", row.get("priority", 0)), row.get("global_steps", row["uid"])
        return f"{self.table.config.name}/{_split(row)}-{step}/{extra['game_id']}/{extra['seat']}/{session}"

    def _policy(self, sampling_params: Mapping[str, Any]) -> ServerPolicy:
        identity = {
            "engine": f"verl-{self.rollout_config.name}",
            "model": str(self.config.actor_rollout_ref.model.path),
            "temperature": sampling_params.get("temperature"),
            "top_p": sampling_params.get("top_p"),
        }
        return ServerPolicy(self.server_manager, sampling_params, self.table.chat.stop_ids, identity)

    def _limits(self) -> Limits:
        """The config's limits, within what verl's batch can hold."""
        limits, rollout = self.table.config.limits, self.rollout_config
        longest = int(rollout.prompt_length) + int(rollout.response_length)
        response = min(limits.dialogue_tokens or longest, int(rollout.response_length))
        return limits.model_copy(
            update={"dialogue_tokens": response, "context_tokens": min(limits.context_tokens or longest, longest)}
        )

    def _is_playable(self, dialogue: Dialogue) -> bool:
        """Whether there is something to learn from: it did not fail, the policy spoke, and its prompt fits verl's."""
        return (
            not dialogue.failed
            and bool(dialogue.response_ids)
            and len(dialogue.prompt_ids) <= self.rollout_config.prompt_length
        )

    def _log(self, dialogue: Dialogue, row: Mapping[str, Any]) -> None:
        config = self.table.config
        step = row.get("global_steps")
        dialogue.run, dialogue.arm, dialogue.phase = config.name, config.arm_name, _split(row)
        dialogue.step = None if step is None else int(step)
        dialogue.group = str(row["uid"]) if config.partner.kind != "self" else f"{row['uid']}/{dialogue.seat}"
        self.table.log.append(dialogue)
        if dialogue.failed:
            logger.warning("%s: %s (%s)", dialogue.id, dialogue.stop_reason, dialogue.failure)

    def _output(self, dialogue: Dialogue, policy: ServerPolicy) -> AgentLoopOutput:
        partner_seconds = sum(turn.seconds for turn in dialogue.turns if turn.seat != dialogue.seat)
        asked = sum(len(turn.questions or ()) > 0 for turn in dialogue.turns if turn.seat == dialogue.seat)
        return AgentLoopOutput(
            prompt_ids=dialogue.prompt_ids,
            response_ids=dialogue.response_ids,
            response_mask=dialogue.loss_mask,
            response_logprobs=dialogue.logprobs,
            reward_score=dialogue.reward,
            num_turns=len(dialogue.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=policy.seconds, tool_calls=partner_seconds, num_preempted=policy.preempted
            ),
            extra_fields={
                "min_global_steps": min(policy.versions, default=0),
                "max_global_steps": max(policy.versions, default=0),
                "reward_extra_info": {
                    "agreed": float(dialogue.stop_reason in (StopReason.AGREED, StopReason.FINISHED)),
                    "questions": float(asked),
                    "unparsable": float(dialogue.stop_reason is StopReason.POLICY_ERRORS),
                },
                "dialogue": dialogue.to_dict(tokens=False),
            },
        )

    def _no_play(self, policy: ServerPolicy) -> AgentLoopOutput:
        """A row for the older trainer that teaches nothing: one token, masked."""
        end = self.table.chat.end_id
        return AgentLoopOutput(
            prompt_ids=[end],
            response_ids=[end],
            response_mask=[0],
            response_logprobs=[0.0],
            reward_score=0.0,
            metrics=AgentLoopMetrics(generate_sequences=policy.seconds),
            extra_fields={
                "min_global_steps": 0,
                "max_global_steps": 0,
                "reward_extra_info": {"agreed": 0.0, "questions": 0.0, "unparsable": 0.0},
                "dialogue": None,
            },
        )


def _split(row: Mapping[str, Any]) -> str:
    return str(row["extra_info"].get("split", "train"))


class SelfPlayLoop(DialogueLoop):
    """Plays one game with the policy on both seats; each seat's view is an output of its own.

    verl compares sessions by their last output and gives its advantage to the others. Since both seats share the game's reward,
    that is each seat's advantage over its own seat's baseline, exactly.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.one_output:
            raise ConfigError(
                "Self-play gives two outputs a session, which verl's older trainer cannot take: use trainer.use_v1=true."
            )

    async def _play(self, policy: ServerPolicy, row: Mapping[str, Any]) -> Sequence[Dialogue]:
        extra, config = row["extra_info"], self.table.config
        return await play_selfplay(
            make_environment(config),
            policy,
            self.table.chat,
            self._limits(),
            game_state=game_state(extra),
            id=self._id(row),
            game_id=extra["game_id"],
            seed=seed_of(config.seed, self._id(row)),
        )
