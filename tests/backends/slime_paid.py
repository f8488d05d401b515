"""What slime's own code makes of the batch, from the rollout's samples to the advantages of its loss; for each control.

    PYTHONPATH=SLIME:MEGATRON python -m tests.backends.slime_paid FOLDER WORDS...

For each WORDS, a command line as JSON, it prints the flags that slime's parser does not know and whether the dotted paths load.

Its rollout manager and its Megatron actor run in part: `_convert_samples_to_train_data`, `_split_train_data_by_dp`,
`compute_advantages_and_returns`. SGLang and W&B, which neither needs for this but both import, are stand-ins without content.
"""

from __future__ import annotations

import argparse
import gc
import importlib.abc
import importlib.machinery
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module of theirs; whatever is asked of it is there, and does nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("sglang", "sglang_router", "wandb"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        module: Any = MagicMock(name=spec.name)
        module.__path__, module.__name__ = [], spec.name
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        pass


gc.disable()  # this is over before there is anything to collect
sys.meta_path.insert(0, Empty())

import pytest  # noqa: E402
import slime.backends.megatron_utils.loss as loss  # noqa: E402
import slime.ray.rollout as rollout  # noqa: E402
import torch  # noqa: E402

from slim_rl.backends.slime.flags import TURN_ADVANTAGES  # noqa: E402
from slim_rl.config import parse_config  # noqa: E402
from slim_rl.dialogue.training_reward import make_training_reward  # noqa: E402
from tests.backends.paid_batch import CONTROLS, dialogues, paid, run, samples, token_advantages  # noqa: E402
from tests.backends.slime_setup import make_args  # noqa: E402

from slim_rl.rollout import normalize_rewards  # noqa: E402  isort: skip


def manager(args: Any, process: Any) -> Any:
    """slime's rollout manager, as far as it makes training data of samples."""
    made = rollout.RolloutManager.__ray_metadata__.modified_class
    self = made.__new__(made)
    self.args, self.custom_reward_post_process_func = args, process
    self.custom_convert_samples_to_train_data_func = None
    self.train_parallel_config = {"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
    return self


def check(control: str, folder: Path) -> None:
    config = parse_config(run(control))
    args = make_args(
        folder, 0, folder, run(control), kl_coef=0, use_rollout_logprobs=False, use_opd=False, normalize_advantages=False,
        custom_advantage_function_path=TURN_ADVANTAGES if make_training_reward(config).by_turn else None, global_batch_size=8,
        use_dynamic_batch_size=True, max_tokens_per_gpu=1000, balance_data=False, balance_by_flops=False, micro_batch_size=1,
        gamma=1.0, grpo_std_normalization=config.train.scale_rewards,
    )  # fmt: skip
    data = manager(args, normalize_rewards)._convert_samples_to_train_data(samples())
    (ref,) = manager(args, normalize_rewards)._split_train_data_by_dp(data)
    batch = ref.inner
    batch["rollout_log_probs"] = [torch.as_tensor(row) for row in batch["rollout_log_probs"]]
    batch["loss_masks"] = [torch.as_tensor(row) for row in batch["loss_masks"]]
    loss.compute_advantages_and_returns(args, batch)
    expected = token_advantages(config) if make_training_reward(config).by_turn else None
    for place, row in enumerate(batch["partition"]):
        mask, found = batch["loss_masks"][place], batch["advantages"][place]
        assert len(mask) == len(found)
        if dialogues()[row].failed:
            assert not mask.any()
        elif expected is not None:
            assert found.tolist() == pytest.approx(expected[row], abs=1e-6)
        else:
            assert found.tolist() == pytest.approx([data["rewards"][row]] * len(found), abs=1e-6)
    # slime's own comparison of a whole group, for the one in which nothing failed
    whole = samples()[4:]
    for sample, reward in zip(whole, paid(config)[4:], strict=True):
        sample.reward = reward
    args.rollout_batch_size = 1
    assert manager(args, None)._post_process_rewards(whole)[1] == pytest.approx(data["rewards"][4:], abs=1e-5)


def read(words: list[str]) -> dict[str, list[Any]]:
    """The words' unknown flags, and whether each of our dotted paths is found by slime's loader."""
    from slime.utils.arguments import get_slime_extra_args_provider
    from slime.utils.misc import load_function

    parser = argparse.ArgumentParser(allow_abbrev=False)
    get_slime_extra_args_provider()(parser)
    args, unknown = parser.parse_known_args(words)
    paths = [
        value for name, value in vars(args).items() if name.endswith("_path") and str(value).startswith("slim_rl.")
    ]
    return {"unknown": unknown, "loaded": [callable(load_function(path)) for path in paths]}


def main() -> None:
    found = [read(json.loads(words)) for words in sys.argv[2:]]
    loss.mpu = MagicMock(is_pipeline_last_stage=lambda: True, get_context_parallel_world_size=lambda: 1)
    rollout.ray.put = lambda data, **_: data
    for control in CONTROLS:
        check(control, Path(sys.argv[1]))
    print(json.dumps({"controls": list(CONTROLS), "pages": found}))


if __name__ == "__main__":
    main()
