"""`generate`: plays one game and returns it to slime as a sample, or under self-play as one sample per seat.

Invariants:

    A played game's sample.tokens are its dialogue's prompt_ids + response_ids, and loss_mask is the dialogue's.
    A failed game is FAILED, removed, rewarded 0.0 so that slime computes no reward for it, and one masked token long.
    A game that slime aborts or cancels leaves its sample as it came; only an aborted one is returned, as ABORTED.

The dialogue is the record. Its sample is written from it when it ends, turn by turn, by slime's own `append_response_tokens`. If the
weights change during a game, it continues: each logprob is that of the weights that sampled its token.

`generate` raises for a configuration or data row that cannot be used, and never for a game. slime from v0.3.2 on aborts by cancelling if
`abort_mode` asks for it; older ones set a flag, which the policy reads before each of its turns.
"""

import copy
import uuid
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from slime.utils.types import Sample

from slim_rl.backends.slime import RECORD
from slim_rl.backends.slime.context import RolloutContext, context_of
from slim_rl.backends.slime.policy import SlimePolicy
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate_beside
from slim_rl.dialogue.record import TRUNCATED, Dialogue, StopReason
from slim_rl.errors import DataError

_GIVEN = (  # what a sample has from slime's data source; the rest is the game's
    *("group_index", "index", "rollout_id", "prompt", "label", "session_id", "train_metadata"),
    *("multimodal_inputs", "multimodal_train_inputs", "multimodal_train_input_id"),
    *("apply_chat_template_kwargs", "generate_function_path", "custom_rm_path"),
)


async def generate(
    args: Namespace, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """slime's ``--custom-generate-function-path``.

    Args:
        sample: from slime's data source; ``sample.metadata`` holds ``game_state`` and may hold ``game_id`` and ``seat``.
        sampling_params: slime's; ``max_new_tokens`` bounds the response, the partner's turns included.

    Raises:
        SlimError: the config, a flag of slime or the sample's data cannot be used.
    """
    context = context_of(args)
    row = _row(sample)
    _reset(sample)
    sample.session_id = sample.session_id or uuid.uuid4().hex
    phase = "eval" if evaluation else "train"
    # slime's index is unique among a run's samples, those of one game included; the step is told by the log functions
    group = row.game_id if evaluation else f"{sample.group_index}"
    spec = context.worker.spec(row, f"{phase}/{sample.index}", phase=phase, group=group)
    samples = _seats(sample, context.worker.ids(spec))
    policy = SlimePolicy(args, context, sampling_params, samples)
    dialogues = await context.worker.play(
        spec, policy=policy, limits=context.limits(args, policy.sampling["max_new_tokens"], evaluation)
    )
    await annotate_beside(dialogue for dialogue in dialogues if dialogue.stop_reason is not StopReason.ABORTED)
    for dialogue in dialogues:
        _finish(args, context, samples[dialogue.id], dialogue, policy.metas[dialogue.id])
    return list(samples.values()) if context.worker.selfplay else sample


generate.abort_mode = "request"  # type: ignore[attr-defined]


def _row(sample: Sample) -> GameRow:
    """Returns the game that slime's data source gave with a sample. Raises DataError if there is no game."""
    metadata = sample.metadata or {}
    if "game_state" not in metadata:
        raise DataError(
            "A sample came without its game: sample.metadata has no 'game_state'. Make the data with `slim-rl generate` and "
            "start slime with --metadata-key metadata."
        )
    return GameRow(str(metadata.get("game_id", "")), int(metadata.get("seat") or 0), metadata["game_state"], [])


def _reset(sample: Sample) -> None:
    """Makes `sample` what the data source gave out: a game that restarts keeps nothing of an earlier attempt."""
    fresh = Sample(**{name: getattr(sample, name) for name in _GIVEN if hasattr(sample, name)})
    fresh.metadata = {key: value for key, value in (sample.metadata or {}).items() if key != RECORD}
    vars(sample).update(vars(fresh))


def _seats(sample: Sample, ids: list[str]) -> dict[str, Sample]:
    """Returns one sample per dialogue. Those of one game share a rollout id until `normalize_rewards` removes it, as slime requires."""
    if len(ids) == 1:
        return {ids[0]: sample}
    sample.rollout_id = sample.index
    other = copy.deepcopy(sample)
    other.session_id = f"{sample.session_id}/1"
    return {ids[0]: sample, ids[1]: other}


def _finish(
    args: Namespace, context: RolloutContext, sample: Sample, dialogue: Dialogue, metas: Sequence[Mapping[str, Any]]
) -> None:
    """Writes the dialogue to its sample: tokens, status, reward and record. `metas`: the engine's `meta_info` of each policy turn."""
    if dialogue.stop_reason is StopReason.ABORTED:
        sample.status = Sample.Status.ABORTED
        return
    if not dialogue.failed:
        try:
            _write_tokens(args, sample, dialogue, metas)
        except ValueError as error:  # what else the engine returned does not fit its tokens
            dialogue.stop_reason, dialogue.reward = StopReason.ENGINE_FAILED, None
            dialogue.failure = f"slime cannot keep the engine's answer: {error}"
            _reset(sample)
    if dialogue.failed:  # it adds nothing to training; its words stay in its record
        sample.status, sample.reward, sample.remove_sample = Sample.Status.FAILED, 0.0, True
    else:  # every turn has left its own status; this is the dialogue's
        cut = dialogue.stop_reason in TRUNCATED
        sample.status, sample.reward = Sample.Status.TRUNCATED if cut else Sample.Status.COMPLETED, dialogue.reward
    padded = not sample.response_length  # else the sample has the dialogue's tokens, and `dialogue_of` reads them there
    if padded:
        _pad(args, context, sample, dialogue)
    sample.metadata = {**(sample.metadata or {}), RECORD: dialogue.to_dict(tokens=padded)}
    sample.non_generation_time = sum(turn.seconds for turn in dialogue.turns if turn.role == "partner")
    sample.response = context.chat.tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])


def _write_tokens(args: Namespace, sample: Sample, dialogue: Dialogue, metas: Sequence[Mapping[str, Any]]) -> None:
    """Appends the response turn by turn: the policy's input, masked, then its samples. Raises ValueError if slime refuses a turn."""
    sample.tokens, written = list(dialogue.prompt_ids), 0
    spans = [turn.span for turn in dialogue.turns if turn.span is not None]
    for (start, end), meta in zip(spans, metas, strict=True):
        if start > written:
            sample.append_response_tokens(args, tokens=dialogue.response_ids[written:start], trainable=False)
        ids, logprobs = dialogue.response_ids[start:end], dialogue.logprobs[start:end]
        sample.append_response_tokens(args, tokens=ids, log_probs=logprobs, trainable=True, meta_info=meta)
        written = end


def _pad(args: Namespace, context: RolloutContext, sample: Sample, dialogue: Dialogue) -> None:
    """Appends one masked token to the prompt.

    slime's trainer can batch neither a sample without a response nor one without the fields of its neighbours.
    """
    end = [context.chat.end_id]
    sample.tokens = list(dialogue.prompt_ids) or end
    if getattr(args, "rollout_top_p", 1.0) != 1.0:
        sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = [], [0]
    sample.append_response_tokens(args, tokens=end, trainable=False)
    if getattr(args, "use_rollout_routing_replay", False):
        import torch

        rows, layers, k = len(sample.tokens) - 1, args.num_layers, args.moe_router_topk
        sample.rollout_routed_experts = torch.arange(k, dtype=torch.int32).expand(rows, layers, k).contiguous()
