"""A GPU node with slime on it, as far as a launch touches one: commands on their own PATH that do what the real ones do.

`ray` keeps a cluster's state in a folder: `start --head --block` is up until it is told to stop, `job submit` runs the entrypoint
in the job's runtime environment. Every call is written to `calls`. slime's tree holds model scripts with the published shapes, a
parser that ignores what it does not know, and entry points that say what they were given.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMMON = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "vocab_size": 151936}
_QWEN3 = dict(_COMMON, model_type="qwen3", num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)
MODELS: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B-Instruct": dict(
        _COMMON, model_type="qwen2", num_hidden_layers=24, hidden_size=896, intermediate_size=4864, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True,
    ),
    "Qwen3-0.6B": dict(_QWEN3, num_hidden_layers=28, hidden_size=1024, intermediate_size=3072, num_attention_heads=16),
    "Qwen3-4B": dict(_QWEN3, num_hidden_layers=36, hidden_size=2560, intermediate_size=9728, num_attention_heads=32),
    "Qwen3-32B": dict(
        _QWEN3, num_hidden_layers=64, hidden_size=5120, intermediate_size=25600, num_attention_heads=64, tie_word_embeddings=False,
    ),
    "Qwen3-30B-A3B": dict(
        _QWEN3, model_type="qwen3_moe", num_hidden_layers=48, hidden_size=2048, intermediate_size=6144, num_attention_heads=32,
        num_key_value_heads=4, num_experts=128, moe_intermediate_size=768, tie_word_embeddings=False,
    ),
}  # fmt: skip

_RAY = r"""#!/usr/bin/env bash
printf '%s\n' "$*" >> "$CLUSTER/calls"
up() { [[ -e $CLUSTER/up || $RAY_ADDRESS == http* ]]; }
case "$1 $2" in
"status "*) up ;;
"start --head") trap 'rm -f "$CLUSTER/up"; echo "head stopped" >> "$CLUSTER/calls"; exit 0' TERM
    touch "$CLUSTER/up"; while :; do sleep 0.05; done ;;
"job stop") kill -TERM "$(cat "$CLUSTER/job")" ;;
"job status") echo "Job '$3' ${ENDED:-succeeded}" ;;
"job submit") shift 2
    while [[ $1 != -- ]]; do [[ $1 == --runtime-env ]] && cp -p "$2" "$CLUSTER/runtime"; shift; done; shift
    up || exit 1
    "$@" & echo $! > "$CLUSTER/job"; wait $! ;;
*) exit 2 ;;
esac
"""
_PYTHON = """#!/usr/bin/env bash
exec "$REAL_PYTHON" "$@"
"""
_GPUS = r"""#!/usr/bin/env bash
case "$*" in *-L*) for gpu in 0 1 2 3; do echo "GPU $gpu: NVIDIA H100 80GB HBM3 (UUID: GPU-$gpu)"; done ;;
*--query-gpu*) for gpu in 0 1 2 3; do echo "NVIDIA H100 80GB HBM3, 81559, ${USED:-4}"; done ;; esac
"""
_TRAIN = """import json, os, sys, time
from slime.utils.arguments import parse_args
create_training_models = create_rollout_manager = None
def train(args):
    words = sys.argv[1:]
    path = os.path.join(os.environ["CLUSTER"], "trained")
    with open(path + ".new", "w") as file:
        json.dump({"entry": os.path.basename(sys.argv[0]), "words": words}, file)
    os.replace(path + ".new", path)
    steps = int(args.num_rollout)
    time.sleep(60 if steps == 60 else 0)
    sys.exit(7 if steps == 7 else 0)
"""
_ARGUMENTS = """import argparse
from pathlib import Path

def parse_args():
    found = argparse.Namespace()
    for half in (0, 1):  # slime's two parsers: each knows its own flags and ignores the rest
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for flag in Path(__file__).with_name("flags").read_text().split():
            if flag.startswith("--sglang") == bool(half):
                parser.add_argument(flag, nargs="*")
        for name, values in vars(parser.parse_known_args()[0]).items():
            setattr(found, name, values[-1] if values else values)
    return found

def add_arguments(parser):  # to be read, and not called
    parser.add_argument("--num-rollout", type=int, default=None)
    parser.add_argument("--advantage-estimator", type=str, choices=["grpo", "ppo"], default="grpo")
"""


def known_flags() -> set[str]:
    """slime's flags, as listed beside this file."""
    lines = Path(__file__).with_name("slime_flags.txt").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line.startswith("--")}


def write_model(folder: Path, name: str, **changes: Any) -> Path:
    """A checkpoint folder that holds a config.json."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(MODELS[name] | changes))
    return path


def write_slime(folder: Path) -> Path:
    """Writes slime's tree."""
    scripts = folder / "scripts" / "models"
    scripts.mkdir(parents=True)
    for name, shape in MODELS.items():
        (scripts / f"{name.replace('Qwen', 'qwen').removesuffix('-Instruct')}.sh").write_text(_model_script(shape))
    package = folder / "slime" / "utils"
    package.mkdir(parents=True)
    (folder / "slime" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "arguments.py").write_text(_ARGUMENTS)
    (package / "flags").write_text("\n".join(sorted(known_flags())))
    for entry in ("train.py", "train_async.py"):
        (folder / entry).write_text(_TRAIN)
    return folder


def _model_script(shape: dict[str, Any]) -> str:
    own = "--add-qkv-bias" if shape["model_type"] == "qwen2" else "--qk-layernorm --kv-channels 128"
    if shape.get("num_experts"):
        own += f" --num-experts {shape['num_experts']} --moe-ffn-hidden-size {shape['moe_intermediate_size']}"
    untied = "" if shape["tie_word_embeddings"] else "--untie-embeddings-and-output-weights"
    return f"""MODEL_ARGS=(
   --swiglu --num-layers {shape["num_hidden_layers"]} --hidden-size {shape["hidden_size"]}
   --ffn-hidden-size {shape["intermediate_size"]} --num-attention-heads {shape["num_attention_heads"]}
   --group-query-attention --num-query-groups {shape["num_key_value_heads"]} --use-rotary-position-embeddings
   --disable-bias-linear --normalization "RMSNorm" --norm-epsilon 1e-6 --rotary-base "${{MODEL_ARGS_ROTARY_BASE:-1000000}}"
   --vocab-size 151936 {own} {untied}
)
"""


@dataclass(frozen=True)
class Cluster:
    """A node whose commands are fakes.

    Attributes:
        folder: its state; `calls`, `trained` and `runtime` are written there.
        slime: slime's tree.
        environment: variables for a process on it.
    """

    folder: Path
    slime: Path
    environment: dict[str, str]

    @classmethod
    def build(cls, folder: Path, gpus: bool = True) -> "Cluster":
        commands = folder / "bin"
        commands.mkdir(parents=True)
        for name, text in {"ray": _RAY, "python3": _PYTHON, **({"nvidia-smi": _GPUS} if gpus else {})}.items():
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        slime = write_slime(folder / "slime")
        kept = ("HOME", "LANG", "TMPDIR", "OMP_NUM_THREADS")
        keep = {key: value for key, value in os.environ.items() if key in kept}
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        own = {
            "PATH": path,
            "CLUSTER": str(folder),
            "SLIME_DIR": str(slime),
            "REAL_PYTHON": sys.executable,
            "HF_HUB_OFFLINE": "1",
            "OPENAI_API_KEY": "sk-fake",
        }
        return cls(folder, slime, keep | own)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def trained(self) -> dict[str, Any]:
        """The entry point that was run, and its words."""
        found: dict[str, Any] = json.loads((self.folder / "trained").read_text())
        return found
