"""`generate`: plays one game and hands it to slime as a sample, or under self-play as one sample a seat. Then

    a played game's sample.tokens are its dialogue's prompt_ids + response_ids, and loss_mask is 1 exactly on what was sampled
    a failed game is FAILED, removed, rewarded 0.0 so that slime computes no reward for it, and one masked token long
    ABORTED is returned only when slime itself is aborting
    a task that is cancelled leaves on its sample what an aborted game leaves: the record and the tokens of all whole turns

It raises for a configuration or data row that cannot be used, and never for a game. slime from v0.3.2 on aborts by cancelling, where
`abort_mode` asks for it; older ones set a flag, which is looked at (`setup.Interruptible`).
"""

from __future__ import annotations

import copy
import functools
import uuid
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from slime.utils.types import Sample

from slim_rl.backends.slime.policy import SlimePolicy
from slim_rl.backends.slime.setup import Interruptible, RolloutContext, process_of
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.errors import DataError

RECORD = "dialogue"  # the key of sample.metadata under which the record stands
RESTARTS = 3  # times a game restarts because the weights changed; after that its old turns are masked instead

_TRUNCATED = (StopReason.TURN_TOKENS, StopReason.DIALOGUE_TOKENS, StopReason.CONTEXT_LENGTH)
_GIVEN = (  # what a sample has from slime's data source; the rest is the game's
    "group_index",
    "index",
    "prompt",
    "multimodal_inputs",
    "multimodal_train_inputs",
    "multimodal_train_input_id",
    "apply_chat_template_kwargs",
    "label",
    "session_id",
    "generate_function_path",
    "custom_rm_path",
    "train_metadata",
)


async def generate(
    args: Namespace, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """slime's ``--custom-generate-function-path``.

    Args:
        sample: from slime's data source; ``sample.metadata`` holds ``game_state`` and may hold ``game_id`` and ``seat``.
            One that slime aborted continues where it stopped (partial rollout) or restarts.
        sampling_params: slime's; ``max_new_tokens`` bounds the response, the partner's turns included.

    Raises:
        SlimError: the config or the sample's data cannot be used.
    """
    process = process_of(args)
    row = _row(sample)
    old = _aborted(args, process, sample)
    sample.session_id = sample.session_id or uuid.uuid4().hex
    phase = "eval" if evaluation else "train"
    # slime's index is unique among a run's samples, those of one game included; the step is told by the log functions
    group = row.game_id if evaluation else f"{sample.group_index}"
    dealt = None if evaluation else (sample.group_index or 0) // args.rollout_batch_size
    episode = process.worker.episode(row, f"{phase}/{sample.index}", phase=phase, group=group, dealt=dealt)
    for restart in range(RESTARTS + 1):
        if old is None:
            _reset(sample)
        samples = _seats(sample, process.worker.ids(episode))
        new_weights = process.config.slime.new_weights
        if new_weights == "restart" and restart == RESTARTS:
            new_weights = "mask"
        policy = SlimePolicy(args, process, sampling_params, samples, new_weights)
        finish = functools.partial(_finish_all, args, process, samples, old is not None)
        dialogues = await process.worker.play(
            episode,
            policy=policy,
            partner=_interruptible(process.worker.partner, policy.state),
            limits=process.limits(args, policy.sampling["max_new_tokens"], evaluation),
            resume=old,
            called_off=finish,
        )
        if not policy.outdated:
            break
        for thrown_away in dialogues:  # its partner was paid all the same
            process.keep(thrown_away, old is not None)
        old = None
    try:
        await process.annotate(dialogues)
    finally:
        finish(dialogues)
    return list(samples.values()) if process.worker.selfplay else sample


generate.abort_mode = "request"  # type: ignore[attr-defined]


def _interruptible(partner: Partner | None, state: Any) -> Partner | None:
    """The partner, with an eye on slime's flag unless slime cancels."""
    return partner if partner is None or hasattr(state, "cancellable_tasks") else Interruptible(partner, state)


def _row(sample: Sample) -> GameRow:
    """The game that slime's data source gave out with a sample. Raises DataError if there is none."""
    metadata = sample.metadata or {}
    if "game_state" not in metadata:
        raise DataError(
            "A sample came without its game: sample.metadata has no 'game_state'. Make the data with `slim-rl generate` and "
            "start slime with --metadata-key metadata."
        )
    return GameRow(str(metadata.get("game_id", "")), int(metadata.get("seat", 0)), metadata["game_state"], [])


def _aborted(args: Namespace, process: RolloutContext, sample: Sample) -> Dialogue | None:
    """The record of a game that slime aborted and that is to continue."""
    record = (sample.metadata or {}).get(RECORD)
    resumes = getattr(args, "partial_rollout", False) and process.config.slime.resume == "replay"
    if not resumes or record is None or sample.status != Sample.Status.ABORTED or not sample.response_length:
        return None
    old = Dialogue.from_dict(record)
    old.response_ids = sample.tokens[-sample.response_length :]
    old.logprobs = list(sample.rollout_log_probs)
    return old


def _reset(sample: Sample) -> None:
    """Makes `sample` what the data source gave out: a game that restarts keeps nothing of an earlier attempt."""
    fresh = Sample(**{name: getattr(sample, name) for name in _GIVEN if hasattr(sample, name)})
    fresh.metadata = {key: value for key, value in (sample.metadata or {}).items() if key != RECORD}
    vars(sample).update(vars(fresh))


def _seats(sample: Sample, ids: list[str]) -> dict[str, Sample]:
    """One sample a dialogue. Those of one game share a rollout id, as slime wants it, until `normalize_rewards` takes it off."""
    if len(ids) == 1:
        return {ids[0]: sample}
    sample.rollout_id = sample.index
    other = copy.deepcopy(sample)
    other.session_id = f"{sample.session_id}/1"
    return {ids[0]: sample, ids[1]: other}


def _finish_all(
    args: Namespace,
    process: RolloutContext,
    samples: Mapping[str, Sample],
    goes_on: bool,
    dialogues: Iterable[Dialogue],
) -> None:
    for dialogue in dialogues:
        process.keep(dialogue, goes_on)
        _finish(args, process, samples[dialogue.id], dialogue)


def _finish(args: Namespace, process: RolloutContext, sample: Sample, dialogue: Dialogue) -> None:
    """Status, reward and record. Every turn has left its own status on the sample; this is the dialogue's."""
    if not dialogue.failed and _differs(sample, dialogue):
        dialogue.stop_reason, dialogue.reward = StopReason.BROKEN, None
        dialogue.failure = "slime's sample does not hold the dialogue's tokens and mask"
    reason = dialogue.stop_reason
    assert reason is not None
    sample.metadata = {**(sample.metadata or {}), RECORD: dialogue.to_dict(tokens=False)}
    sample.reward = dialogue.reward
    if reason is StopReason.ABORTED:
        sample.status = Sample.Status.ABORTED
    elif reason.is_failure:
        _blank(args, process, sample, dialogue)
    else:
        sample.status = Sample.Status.TRUNCATED if reason in _TRUNCATED else Sample.Status.COMPLETED
        if not sample.response_length:
            _pad(args, process, sample, dialogue)
    sample.non_generation_time = sum(turn.seconds for turn in dialogue.turns if turn.role == "partner")
    sample.response = process.chat.tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])


def _differs(sample: Sample, dialogue: Dialogue) -> bool:
    """Whether slime would train on other tokens or another mask than the dialogue's. New weights may have zeroed the mask."""
    tokens = sample.tokens[len(sample.tokens) - sample.response_length :]
    mask = list(sample.loss_mask or ())
    outdated = all(own <= whole for own, whole in zip(mask, dialogue.loss_mask, strict=False))
    return tokens != dialogue.response_ids or len(mask) != len(dialogue.loss_mask) or not outdated


def _blank(args: Namespace, process: RolloutContext, sample: Sample, dialogue: Dialogue) -> None:
    """A failed game adds nothing to training; its words stay in its record."""
    metadata, rollout_id = sample.metadata, sample.rollout_id
    _reset(sample)
    sample.metadata, sample.rollout_id = metadata, rollout_id
    sample.status, sample.reward, sample.remove_sample = Sample.Status.FAILED, 0.0, True
    _pad(args, process, sample, dialogue)


def _pad(args: Namespace, process: RolloutContext, sample: Sample, dialogue: Dialogue) -> None:
    """One masked token after the prompt: slime's trainer can neither batch a sample without a response, nor one without
    what its neighbours have.
    """
    end = [process.chat.end_id]
    sample.tokens = list(dialogue.prompt_ids) or end
    if getattr(args, "rollout_top_p", 1.0) != 1.0:
        sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = [], [0]
    sample.append_response_tokens(args, tokens=end, trainable=False)
    if getattr(args, "use_rollout_routing_replay", False):
        import torch

        rows, layers, chosen = len(sample.tokens) - 1, args.num_layers, args.moe_router_topk
        sample.rollout_routed_experts = (
            torch.arange(chosen, dtype=torch.int32).expand(rows, layers, chosen).contiguous()
        )
