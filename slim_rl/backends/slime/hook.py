"""`generate`: plays one game and hands it to slime as a sample, or under self-play as one sample a seat. Then

    a played game's sample.tokens are its dialogue's prompt_ids + response_ids, and loss_mask is 1 exactly on what was sampled
    a failed game is FAILED, removed, rewarded 0.0 so that nobody asks for a reward, and one masked token long
    ABORTED comes back only when slime itself is calling off

It raises for a configuration or data row that cannot be used, and never for a game.
"""

from __future__ import annotations

import copy
import logging
import uuid
from argparse import Namespace
from typing import Any

from slime.utils.types import Sample

from slim_rl.backends.slime.policy import SlimePolicy
from slim_rl.backends.slime.setup import Interruptible, Setup, setup
from slim_rl.config import Config
from slim_rl.dialogue.loop import play_dialogue, play_selfplay
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import make_environment
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.seeds import seed_of

log = logging.getLogger(__name__)

RECORD = "dialogue"  # the key of sample.metadata under which the record stands
RESTARTS = 3  # times a game begins anew because its weights changed; after that its old turns are masked instead

_TRUNCATED = (StopReason.TURN_TOKENS, StopReason.DIALOGUE_TOKENS, StopReason.CONTEXT_LENGTH)
_GIVEN = (  # what a sample has from slime's data source; the rest is the game's
    "group_index",
    "index",
    "prompt",
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
            One that was called off goes on where it stopped (partial rollout) or begins anew.
        sampling_params: slime's; ``max_new_tokens`` bounds the response, the partner's turns included.

    Raises:
        SlimError: the config or the sample's data cannot be used.
    """
    table = setup(args)
    metadata = sample.metadata or {}
    if "game_state" not in metadata:
        raise DataError(
            "A sample came without its game: sample.metadata has no 'game_state'. Make the data with `slim-rl generate` and "
            "start slime with --metadata-key metadata."
        )
    old = _called_off(args, table, sample)
    sample.session_id = sample.session_id or uuid.uuid4().hex
    id = f"{'eval' if evaluation else 'train'}/{sample.index}/{metadata.get('game_id', '')}"
    for restart in range(RESTARTS + 1):
        if old is None:
            _reset(sample)
        samples = _seats(sample, id) if table.selfplay else {id: sample}
        new_weights = table.config.slime.new_weights
        if new_weights == "restart" and restart == RESTARTS:
            new_weights = "mask"
        policy = SlimePolicy(args, table, sampling_params, samples, new_weights)
        dialogues = await _play(args, table, policy, sample, id, old, evaluation)
        if not policy.outdated:
            break
        old = None
    for played, dialogue in zip(samples.values(), dialogues, strict=True):
        _describe(table, sample, dialogue, evaluation)
        _finish(args, table, played, dialogue)
    return list(samples.values()) if table.selfplay else sample


async def _play(
    args: Namespace,
    table: Setup,
    policy: SlimePolicy,
    sample: Sample,
    id: str,
    old: Dialogue | None,
    evaluation: bool,
) -> list[Dialogue]:
    """One dialogue a sample of `policy`. Whatever breaks in the game is a failed dialogue."""
    metadata, config = sample.metadata, table.config
    game: dict[str, Any] = {"game_state": metadata["game_state"], "id": id, "game_id": str(metadata.get("game_id", ""))}
    game["seed"] = seed_of(args.rollout_seed, "eval" if evaluation else "train", sample.index)
    limits = table.limits(args, policy.sampling["max_new_tokens"], evaluation)
    env = make_environment(config)
    seats = (0, 1) if table.selfplay else (int(metadata.get("seat", 0)),)
    try:
        if table.selfplay:
            return list(await play_selfplay(env, policy, table.chat, limits, **game))
        partner = Interruptible(table.partner, policy.state) if table.partner and env.seats == 2 else None
        own: dict[str, Any] = {"seat": seats[0], "prompt": _opening(config, sample), "resume": old}
        return [await play_dialogue(env, policy, partner, table.chat, limits, **own, **game)]
    except SlimError:
        raise
    except Exception as error:
        log.exception("dialogue %s broke", id)
        partner_identity = table.partner.identity if table.partner else {"kind": "self"}
        why = f"{type(error).__name__}: {error}"
        return [
            Dialogue(
                **{**game, "game_state": dict(game["game_state"]), "id": key},
                seat=seat,
                policy=policy.identity,
                partner=partner_identity,
                stop_reason=StopReason.BROKEN,
                failure=why,
            )
            for key, seat in zip(policy.samples, seats, strict=True)
        ]


def _opening(config: Config, sample: Sample) -> list[dict[str, str]] | None:
    """The policy's opening messages from the data row; None, for the game's own, where slime has made a text of them."""
    if isinstance(sample.prompt, list):
        return sample.prompt[1:] if config.game.rules == "none" else sample.prompt
    if config.game.rules == "none":
        raise ConfigError(
            "game.rules is 'none', but slime writes the rules into the prompt: drop --apply-chat-template."
        )
    return None


def _called_off(args: Namespace, table: Setup, sample: Sample) -> Dialogue | None:
    """The record of a game that slime called off and that is to go on."""
    record = (sample.metadata or {}).get(RECORD)
    resumes = getattr(args, "partial_rollout", False) and table.config.slime.resume == "replay"
    if not resumes or record is None or sample.status != Sample.Status.ABORTED or not sample.response_length:
        return None
    old = Dialogue.from_dict(record)
    old.response_ids = sample.tokens[-sample.response_length :]
    old.logprobs = list(sample.rollout_log_probs)
    return old


def _reset(sample: Sample) -> None:
    """Makes `sample` as the data source gave it out: a game that begins anew has nothing of an earlier attempt."""
    fresh = Sample(**{name: getattr(sample, name) for name in _GIVEN})
    fresh.metadata = {key: value for key, value in (sample.metadata or {}).items() if key != RECORD}
    vars(sample).update(vars(fresh))


def _seats(sample: Sample, id: str) -> dict[str, Sample]:
    """One sample a seat. They share a rollout id: slime's loss counts them as one execution."""
    sample.rollout_id = sample.index
    other = copy.deepcopy(sample)
    other.session_id = f"{sample.session_id}/1"
    return {f"{id}/0": sample, f"{id}/1": other}


def _describe(table: Setup, sample: Sample, dialogue: Dialogue, evaluation: bool) -> None:
    dialogue.run, dialogue.arm = table.config.name, table.config.arm_name
    dialogue.phase = "eval" if evaluation else "train"
    group = dialogue.game_id if evaluation else f"{sample.group_index}"
    dialogue.group = f"{group}/{dialogue.seat}" if table.selfplay else group


def _finish(args: Namespace, table: Setup, sample: Sample, dialogue: Dialogue) -> None:
    """Status, reward and record. Every turn has left its own status on the sample; this is the dialogue's."""
    reason = dialogue.stop_reason
    assert reason is not None
    sample.metadata = {**(sample.metadata or {}), RECORD: dialogue.to_dict(tokens=False)}
    sample.reward = dialogue.reward
    if reason is StopReason.ABORTED:
        sample.status = Sample.Status.ABORTED
    elif reason.is_failure:
        _blank(args, table, sample, dialogue)
    else:
        sample.status = Sample.Status.TRUNCATED if reason in _TRUNCATED else Sample.Status.COMPLETED
        if not sample.response_length:
            _pad(args, table, sample, dialogue)
    sample.non_generation_time = sum(turn.seconds for turn in dialogue.turns if turn.role == "partner")
    sample.response = table.chat.tokenizer.decode(sample.tokens[len(sample.tokens) - sample.response_length :])


def _blank(args: Namespace, table: Setup, sample: Sample, dialogue: Dialogue) -> None:
    """A failed game carries nothing to training; what was said stays in its record."""
    metadata, rollout_id = sample.metadata, sample.rollout_id
    _reset(sample)
    sample.metadata, sample.rollout_id = metadata, rollout_id
    sample.status, sample.reward, sample.remove_sample = Sample.Status.FAILED, 0.0, True
    _pad(args, table, sample, dialogue)


def _pad(args: Namespace, table: Setup, sample: Sample, dialogue: Dialogue) -> None:
    """One masked token after the prompt: slime's trainer can neither batch a sample without a response, nor one that lacks
    what its neighbours have.
    """
    end = [table.chat.end_id]
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
