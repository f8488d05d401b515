"""slime's own start of a resumed run, on a CPU: its train.py, its group of actors and its Megatron actor with the weights that it keeps.

    python -m tests.fakes.slime_actor SLIME_DIR train.py ...   each through the driver; a line for each time that weights go to the engine

In place of what needs GPUs or a cluster stand: Ray, whose calls here run at once; Megatron, whose model is one number, 1.0 in the
checkpoint that the run continues from and 0.0 in the reference; and the updater, which sends what the model holds, as slime's does
over NCCL.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import sys
import tempfile
from argparse import Namespace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_ABSENT = {"ray", "megatron", "sglang", "sglang_router", "torch_memory_saver", "wandb"}
_ABSENT |= {"transformer_engine", "flash_attn", "mbridge"}
SAVED, REFERENCE = 1.0, 0.0


class _Absent(MetaPathFinder, Loader):
    """Modules that slime imports and nothing here runs: any name can be taken from them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in _ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: _any(module, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None: ...


def _any(module: ModuleType, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    setattr(module, name, MagicMock(name=f"{module.__name__}.{name}"))
    return module.__dict__[name]


class _Handle:
    """One of Ray's actors: `handle.method.remote(...)` runs the method at once."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return Namespace(remote=getattr(self._instance, name))


def _remote(*classes: type, **options: Any) -> Any:
    """`ray.remote`: the class is made without its `__init__`, which asks for a GPU."""

    def made(cls: type) -> Any:
        created = Namespace(remote=lambda *args: _Handle(cls.__new__(cls)))
        return Namespace(options=lambda **options: created)

    return made(*classes) if classes else made


_PLACE = tempfile.TemporaryDirectory()  # of the run's folder


class _Arguments(Namespace):
    """slime's arguments; a switch that is not named is off."""

    def __getattr__(self, name: str) -> bool:
        if name.startswith("__"):
            raise AttributeError(name)
        return False


def _arguments() -> _Arguments:
    """Of a run with a KL term that is not colocated and continues after step 6, its last."""
    one = dict.fromkeys(("num_gpus_per_node", "actor_num_nodes", "actor_num_gpus_per_node"), 1)
    none = (
        "megatron_config_path",
        "start_rollout_id",
        "save_interval",
        "eval_interval",
        "rollout_data_postprocess_path",
    )
    mode = {"update_weight_mode": "full", "update_weight_transport": "nccl", "train_backend": "megatron"}
    kept = {"use_kl_loss": True, "kl_coef": 0, "num_rollout": 7, "update_weights_interval": 1, "train_env_vars": {}}
    kept["custom_config_path"] = f"{_PLACE.name}/run/config.yaml"
    return _Arguments(**one, **dict.fromkeys(none), **mode, **kept)


class _Manager:
    """The rollout manager, with one engine."""

    def get_updatable_engines_and_lock(self) -> Any:
        return ["engine"], None, 1, None, None, None

    def clear_updatable_num_new_engines(self) -> None: ...

    def set_train_parallel_config(self, config: Any) -> None: ...

    def generate(self, step: int) -> None: ...

    def dispose(self) -> None: ...


class _Updater:
    def __init__(self, args: Any, model: Any, **more: Any) -> None:
        self.model = model

    def connect_rollout_engines(self, *engines: Any, **more: Any) -> None: ...

    def update_weights(self) -> None:
        print("sent", self.model[0].weight.item(), flush=True)


def _prepare() -> None:
    """Puts the stand-ins in place, in this process for good."""
    gc.disable()  # what is imported here stays
    import torch

    sys.meta_path.insert(0, _Absent())
    ray = importlib.import_module("ray")
    ray.remote, ray.get = _remote, lambda result: result  # type: ignore[attr-defined]
    parsers = ModuleType("slime.utils.arguments")
    parsers.parse_args = _arguments  # type: ignore[attr-defined]
    sys.modules[parsers.__name__] = parsers
    groups = importlib.import_module("slime.ray.placement_group")
    groups.create_placement_groups = lambda args: {"actor": (None, [0], [0]), "rollout": None}  # type: ignore[attr-defined]
    groups.create_rollout_manager = lambda args, pg: (_Handle(_Manager()), None)  # type: ignore[attr-defined]

    def model_with(weight: float) -> list[torch.nn.Linear]:
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(model.weight, weight)
        return [model]

    actor = importlib.import_module("slime.backends.megatron_utils.actor")
    backups = importlib.import_module("slime.utils.tensor_backper")
    like = torch.empty_like
    torch.empty_like = lambda tensor, pin_memory=False, **more: like(tensor, **more)  # type: ignore[assignment]
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
    vars(backups)["accelerator"] = MagicMock()
    off = ("init", "monkey_patch_torch_dist", "register_default_process_group", "get_gloo_group", "clear_memory")
    off += ("print_memory", "AutoConfig", "AutoTokenizer", "TrainProfiler", "is_megatron_main_rank", "dist")
    vars(actor).update({name: MagicMock() for name in off})
    actor.dist.get_rank.return_value = 0
    actor.mpu.get_virtual_pipeline_model_parallel_world_size.return_value = None
    vars(actor).update(
        initialize_model_and_optimizer=lambda args, role: (model_with(SAVED), None, None, 6),
        load_checkpoint=lambda model, *more, **other: (torch.nn.init.constant_(model[0].weight, REFERENCE), None),
        named_params_and_buffers=lambda args, model, **more: model[0].named_parameters(),
        UpdateWeightFromDistributed=_Updater,
    )
    train_actor = actor.TrainRayActor
    train_actor.master_addr, train_actor.master_port = "127.0.0.1", 0
    train_actor.init = lambda self, args, role, *more: vars(self).update(args=args, role=role)


def main(slime: str, *entries: str) -> int:
    """Runs each script in a process of its own, all from this one, which has imported what they need. Returns how many failed."""
    sys.path.insert(0, slime)
    _prepare()
    failed = 0
    for entry in entries:
        print(entry, flush=True)
        process = multiprocessing.get_context("fork").Process(target=_run, args=(Path(slime) / entry,))
        process.start()
        process.join()
        failed += process.exitcode != 0
    return failed


def _run(script: Path) -> None:
    from slim_rl.backends.slime import driver

    raise SystemExit(driver.main([str(script)]))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
