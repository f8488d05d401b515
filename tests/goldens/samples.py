"""Each Sample that slime's own rollout code gets from the hook: one partner, limits, a failing engine, self-play, one seat."""

import tempfile
from pathlib import Path
from typing import Any

from tests.paths import ROOT

CASES: dict[str, dict[str, Any]] = {
    "partner": {},
    "limits": {"rollout_max_response_len": 120},
    "turn_tokens": {"slim_rl": {"limits": {"turn_tokens": 12}}},
    "failing": {
        "slim_rl": {"slime": {"engine_retry_seconds": 0.0, "min_survivors": 0.0}, "train": {"stop_failures": 1.0}}
    },
    "selfplay": {"slim_rl": {"partner": {"kind": "self"}}},
}
OF_SLIME = {
    "custom_generate_function_path": "slim_rl.rollout.generate", "rollout_global_dataset": True, "group_rm": False,
    "rollout_sample_filter_path": "slim_rl.rollout.keep_usable_groups", "over_sampling_batch_size": 2, "custom_rm_path": None,
    "dynamic_sampling_filter_path": None, "rollout_all_samples_process_path": None, "num_rollout": 1, "rm_type": None, "rm_url": None,
    "custom_reward_post_process_path": "slim_rl.rollout.normalize_rewards", "mask_offpolicy_in_partial_rollout": False,
}  # fmt: skip


def figures() -> dict[str, Any]:
    """Computes case -> the samples of two groups of four, as slime's `generate_rollout` returns them."""
    return {case: _rollout(case) for case in CASES}


def _rollout(case: str) -> list[dict[str, Any]]:
    from tests.backends import slime_setup
    from tests.fakes.sglang_server import Faults

    from slime.rollout.sglang_rollout import generate_rollout_async  # isort: skip  (made importable by slime_setup)
    from slim_rl.rollout import normalize_rewards  # isort: skip
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data" / "warmstart")
    faults = Faults(error=0.1, stubborn=True) if case == "failing" else Faults()
    with slime_setup.serve(tokenizer, faults=faults) as server, tempfile.TemporaryDirectory() as folder:
        args = slime_setup.make_args(ROOT / "data" / "warmstart", server.port, Path(folder), **OF_SLIME, **CASES[case])

        def more(number: int) -> list[Any]:
            return [slime_setup.make_group(4, game, 4 * game) for game in range(number)]

        output, called_off = slime_setup.run(args, generate_rollout_async(args, 0, more))
    assert not called_off
    flat = [sample for game in _flat(output.samples) for sample in game]
    raw, rewards = normalize_rewards(args, flat)
    return [_of(sample, *pair) for sample, *pair in zip(flat, raw, rewards, strict=True)]


def _flat(groups: list[Any]) -> list[list[Any]]:
    return [each if isinstance(each, list) else [each] for group in groups for each in group]


def _of(sample: Any, raw: float, normalised: float) -> dict[str, Any]:
    return {
        "ids": " ".join(map(str, sample.tokens)),
        "mask": "".join(map(str, sample.loss_mask)),
        "logprobs": [round(one, 6) for one, own in zip(sample.rollout_log_probs, sample.loss_mask, strict=True) if own],
        "status": sample.status.value,
        "reward": sample.reward,
        "removed": sample.remove_sample,
        "index": [sample.group_index, sample.index, sample.rollout_id],
        "raw": raw,
        "normalised": normalised,
    }
