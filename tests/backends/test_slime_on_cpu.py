"""What of a run without a GPU needs no slime: whether it can be had, its model's shape, its lines on the screen, packages that are not there.

`make test-slime` shows the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from slime_cpu import flags, precision, progress, room, run, server, sources
from slime_cpu.architecture import architecture
from slime_cpu.environment import of_the_script

from slim_rl.backends.slime import flags as flags_of_slime
from slim_rl.backends.slime.launch import missing
from slim_rl.config import load_config
from slim_rl.dialogue.log import DialogueLog
from slim_rl.errors import ConfigError, SlimError
from tests.backends.paid_batch import dialogues
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

SITE = ROOT / "tools" / "slime_cpu" / "site"


def test_a_model_has_the_flags_of_its_shape() -> None:
    script = of_the_script(ROOT, ROOT)
    variables = script | {"PYTHON": sys.executable, "MODEL": str(ROOT / "data" / "warmstart")}
    sourced = ["bash", "-euc", f'source {script["MODEL_SCRIPT"]} && echo "${{MODEL_ARGS[@]}}"']
    found = flags_of_slime.parse_flags(subprocess.check_output(sourced, env=variables, text=True).split())
    assert found == flags_of_slime.parse_flags(_QWEN3.split())


_QWEN3 = """--swiglu --num-layers 4 --hidden-size 128 --ffn-hidden-size 384 --num-attention-heads 4 --group-query-attention --num-query-groups 2
    --kv-channels 32 --use-rotary-position-embeddings --rotary-base 10000 --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-06
    --vocab-size 640 --qk-layernorm"""
_QWEN2 = {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "vocab_size": 151936, "rope_theta": 1e6, "tie_word_embeddings": True}  # fmt: skip


def test_qwen2_has_the_flags_of_slimes_own_file() -> None:
    if not (found := slimes()):
        pytest.skip(NO_SLIME)
    own = found[0] / "scripts" / "models" / "qwen2.5-0.5B.sh"
    printed = subprocess.check_output(["bash", "-euc", f'source {own} && echo "${{MODEL_ARGS[@]}}"'], text=True)
    written = flags_of_slime.parse_flags(printed.replace("1e-6", "1e-06").split())
    made = flags_of_slime.parse_flags(flags_of_slime.words(architecture(_QWEN2)))
    assert made == written | {"--kv-channels": ["64"]}, "which is Megatron's default"
    assert "--untie-embeddings-and-output-weights" in architecture(_QWEN2 | {"tie_word_embeddings": False})
    with pytest.raises(ConfigError, match="model_type is llama"):
        architecture({"model_type": "llama"})


@pytest.mark.parametrize(
    ("change", "nodes", "told"),
    [
        ("policy.top_p=0.9", "1", "Add --set policy.top_p=1"),
        ("policy.top_p=1", "2", "leave it out"),
        ("policy.top_p=1", "1", "`make run-slime` makes an environment with them"),
    ],
)
def test_what_it_cannot_do_is_said_first(change: str, nodes: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "make run-slime" in missing()
    monkeypatch.setattr(sys, "path", [])  # where nothing is installed
    monkeypatch.setenv("NUM_NODES", nodes)
    with pytest.raises(ConfigError, match=told):
        run.check(load_config(ROOT / "configs" / "matching_local.yaml", [change]))


def test_megatron_and_sglang_compute_in_one_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "CPU", tmp_path / "cpuinfo")
    config = load_config(ROOT / "configs" / "qwen_local.yaml")
    for features, dtype in (("avx2 avx512f", "float32"), ("avx512_bf16", "bfloat16"), ("avx2 amx_bf16", "bfloat16")):
        flags.CPU.write_text(f"flags\t\t: fpu {features}\n")
        assert flags.precision(config, {}) == dtype, features
    assert flags.precision(config.changed(policy={"dtype": "float32"}), {}) == "float32"
    assert flags.precision(config, {"--sglang-dtype": ["float32"]}) == "float32", "the user's own flag"
    for asked, dtype in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        args = Namespace(sglang_dtype=asked, params_dtype=torch.bfloat16, slim_rl={"train": {"threads": 2}})
        before = torch.get_num_threads()
        precision.init(args)
        assert (args.params_dtype, torch.get_num_threads()) == (dtype, 2)
        torch.set_num_threads(before)
    with pytest.raises(ConfigError, match="float32 or bfloat16"):
        flags.precision(config, {"--sglang-dtype": ["float16"]})


def test_a_machine_too_small_for_a_model_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, weights = ROOT / "data" / "warmstart", 869_760
    assert room.count_weights(tiny) == weights
    memory = {"available": 3 << 30}
    monkeypatch.setattr(room.psutil, "virtual_memory", lambda: Namespace(**memory))
    monkeypatch.setattr(room.psutil, "disk_usage", lambda path: Namespace(free=40 * weights - 1))
    (tmp_path / "run").mkdir()
    with pytest.raises(
        SlimError, match=r"takes 2\.0 GiB of memory and 0\.0 GB of disk, but 3\.0 GiB and 0\.0 GB are free; end"
    ):
        room.check(tiny, tmp_path / "run")
    (tmp_path / "run" / "checkpoint").write_text("1")  # whose place the next one takes
    room.check(tiny, tmp_path / "run")
    monkeypatch.setattr(room, "count_weights", lambda model: 494_032_768)
    monkeypatch.setattr(room.psutil, "disk_usage", lambda path: Namespace(free=10**11))
    with pytest.raises(
        SlimError, match=r"Training 494 million weights takes 20\.4 GiB of memory and 19\.8 GB of disk, but 3\.0 GiB"
    ):
        room.check(tiny, tmp_path / "new")
    memory["available"] = 21 << 30
    room.check(tiny, tmp_path / "new")


@pytest.mark.parametrize(
    ("vocabulary", "gigabytes", "limit"),
    [(151_936, 24, 1060), (151_936, 8, 1024), (151_936, 512, None), (1500, 4, None)],
)
def test_packs_fit_the_machines_memory_and_one_checkpoint_stays(vocabulary: int, gigabytes: int, limit: Any) -> None:
    config = load_config(ROOT / "configs" / "matching_local.yaml", ["train.save_every=10"])
    found = flags.trainer(config, vocabulary, gigabytes * 2**30)
    assert found.get("--max-tokens-per-gpu") == limit
    assert found["--save-retain-interval"] % 10 == 0 and found["--save-retain-interval"] > config.train.steps


def test_keep_last_of_saved_models_leaves_one(tmp_path: Path) -> None:
    run.keep_last(tmp_path / "hf")
    for number in ("9", "19", "99"):
        (tmp_path / "hf" / number).mkdir(parents=True)
    run.keep_last(tmp_path / "hf")
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["99"]


def test_a_step_is_told_when_its_dialogues_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.02)
    path = tmp_path / "train.jsonl"

    def log(step: int, upto: int | None = None) -> None:
        with DialogueLog(path, from_step=step) as file:  # as a run that goes on: without what it plays again
            for dialogue in dialogues()[:upto]:
                dialogue.step = step
                file.append(dialogue)

    def heard() -> list[str]:
        time.sleep(0.4)
        return [line[: len("slim-rl: step    1")] for line in capsys.readouterr().err.splitlines()]

    log(0)
    log(1, upto=3)
    calls: list[None] = []
    output = tmp_path / "slime.log"
    output.write_text("perf 0: {'perf/train_time': 9.0}\n")  # of an earlier start
    with progress.told(path, output, dialogues=8, done=0, after=lambda: calls.append(None)):
        assert heard() == []
        log(1)
        assert heard() == ["slim-rl: step    1"]
        log(2)
    assert heard() == ["slim-rl: step    2"] and len(calls) == 3, "after each step, and at the end"


def test_a_step_is_told_where_its_seconds_went(tmp_path: Path) -> None:
    """By lines as slime prints them, of two processes; the last is still being written."""
    output = tmp_path / "slime.log"
    read = progress.seconds(output)
    assert list(read()) == []
    with output.open("a") as file:
        file.write(
            "[a] perf 3: {'rollout/x': 1, 'perf/rollout_time': 4.51, 'perf/longest_sample_tokens_per_sec': np.float64(7.5)}\n"
        )
        file.write("[b] perf 3: {'perf/save_model_time': 5.7, 'perf/update_weights_time': 0.12, 'perf/actor_train_time': 1.9, "
            "'perf/train_time': np.float64(2.96), 'perf/step_time': 13.3}\n[a] perf 4: {'perf/rollout_time': 4.0}\n")  # fmt: skip
        file.write("[b] perf 4: {'perf/train_time': 2.0")
        file.flush()
        assert list(read()) == ["step    3: 4.5 s playing, 3.0 s training, 0.1 s new weights, 5.7 s saving"]
        file.write(", 'perf/update_weights_time': 0.1}\n")
        file.flush()
    assert list(read()) == ["step    4: 4.0 s playing, 2.0 s training, 0.1 s new weights"]


_STAND_INS = {  # an SGLang that answers, a Ray that is none, and a slime that stops, with or without an engine
    "sglang/__init__.py": "",
    "sglang/launch_server.py": """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "tiny", "max_model_len": 8192}]}')
        self.wfile.flush()
        with open(os.environ["ENGINE"], "a") as file:
            file.write(self.path + "\\n")

Path(os.environ["ENGINE"]).write_text(f"{os.getpid()}\\n")
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
""",
    "slime/utils/arguments.py": "",
    "ray.py": "init = shutdown = get = lambda *args, **kwargs: None",
    "train.py": """
import argparse, os, ray, signal, sys, time
from pathlib import Path
from unittest.mock import MagicMock
from slim_rl.errors import RunStopped

create_training_models = finish_tracking = lambda *args: None
create_rollout_manager = lambda *args: (MagicMock(), None)

def parse_args():
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    for word in sys.argv[1:]:
        if word.startswith("--"):
            parser.add_argument(word, nargs="?")
    parser.set_defaults(rollout_global_dataset=False)
    return parser.parse_known_args()[0]

def train(args):
    create_rollout_manager(args)
    if os.environ["KILLS"]:
        engine = Path(os.environ["ENGINE"])
        while engine.read_text().count("/health") < 2:  # until the launch too, and not the driver alone, has seen it answer
            time.sleep(0.02)
        os.kill(int(engine.read_text().split()[0]), signal.SIGKILL)
    raise RunStopped("Training stops: 32 of 32 dialogues failed.")
""",
}


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, kills: bool = False, **others: str) -> str:
    """What a run says at its end that is made of the stand-ins, with `others` in the place of some."""
    for name, text in (_STAND_INS | others).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    (folder / "megatron").mkdir(exist_ok=True)
    for name in ("SLIME_DIR", "MEGATRON_DIR"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("ENGINE", str(folder / "pid"))
    monkeypatch.setenv("KILLS", "1" if kills else "")
    path, changes = ROOT / "configs" / "matching_local.yaml", [f"data.train={folder}/games.jsonl", "data.num_train=40"]
    changes += ["data.eval=null", "policy.top_p=1", "train.backend=slime"]
    with pytest.raises(SlimError) as said:
        run.train(path, load_config(path, changes), changes, [], folder / "run")
    return str(said.value)


@pytest.mark.parametrize("killed", [True, False])
def test_a_run_that_stops_says_if_sglang_is_gone(killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"SGLang is gone: see {tmp_path}/run/sglang.log. " if killed else ""
    assert stopped(tmp_path, monkeypatch, killed) == f"{gone}Training stops: 32 of 32 dialogues failed."


def test_nothing_is_trained_before_sglang_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = {
        "sglang/launch_server.py": """
import os, time
from pathlib import Path
while not (Path(os.environ["ENGINE"]).parent / "run" / "slime.log").exists():  # the job runs
    time.sleep(0.1)
time.sleep(1)
raise SystemExit("no such model")
"""
    }
    said = stopped(tmp_path, monkeypatch, **late)
    assert said.startswith("The SGLang server ended with exit code 1") and said.endswith("no such model")
    assert "Training stops" not in (tmp_path / "run" / "slime.log").read_text(encoding="utf-8")


def test_absent_packages_import_but_cannot_be_called() -> None:
    program = """
import sitecustomize, sgl_kernel.gemm as gemm
from torchvision.transforms import Resize
from triton import jit, language, autotune
import triton.runtime
@jit
def kernel(x: language.constexpr): return x
@autotune(configs=[], key=["n"])
def other(): return 2
class Own(Resize): pass
assert kernel(1) == 1 and other() == 2
for wrong in (gemm.multiply, Own, lambda: triton.runtime.driver.active):
    try: wrong(1, 2) if wrong is gemm.multiply else wrong()
    except RuntimeError as error: print(error)
"""
    path, command = {"PYTHONPATH": f"{SITE}:{SITE.parents[1]}:{ROOT}"}, [sys.executable, "-c", program]
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("sgl_kernel.gemm.multiply was called, which is not there without a GPU")
    assert "0 active drivers" in said[2]


def test_megatron_has_slimes_patch_and_nothing_else(tmp_path: Path) -> None:
    if not sources.here({}):
        pytest.skip("slime's and Megatron's sources are not here")
    named = {"SLIME_DIR": str(tmp_path / "slime"), "MEGATRON_DIR": str(tmp_path / "megatron")}
    assert sources.here(named) and sources.find(named) == (tmp_path / "slime", tmp_path / "megatron")
    slime, megatron = sources.find({})
    (archived,) = sources.unpacked("megatron")
    assert archived.parents[1] == megatron.parent and slime.is_relative_to(megatron.parent)
    text = (slime / "docker" / "patch" / "latest" / "megatron.patch").read_text(encoding="utf-8")
    patched = set(re.findall(r"^\+\+\+ b/(.*)$", text, re.MULTILINE))
    files = {str(path.relative_to(archived)) for path in (archived / "megatron").rglob("*.py")}
    changed = {file for file in files if (archived / file).read_bytes() != (megatron / file).read_bytes()}
    assert changed == patched
    with pytest.raises(SlimError, match="set MEGATRON_DIR"):
        sources.find({"SLIME_DIR": str(tmp_path)})


_PATCH = """\
--- a/megatron/core/layer.py
+++ b/megatron/core/layer.py
@@ -1 +1 @@
-width = 1
+width = 2
"""
_FILES = {
    "slime": {"train.py": "", "docker/patch/latest/megatron.patch": _PATCH},
    "megatron": {"megatron/core/layer.py": "width = 1\n", "tools/none.py": ""},
}
_GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]


def published(folder: Path, files: dict[str, str]) -> str:
    """A repository that others can clone, as URL@COMMIT: of these files, which a later commit has changed."""
    commits = []
    for texts in (files, dict.fromkeys(files, "later\n")):
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all of it"]):
            subprocess.run([*_GIT, *words], cwd=folder, check=True)
        head = subprocess.run([*_GIT, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        commits.append(head.stdout.strip())
    return f"file://{folder}@{commits[0]}"


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Asks where the sources are, in a folder that has nothing beside it but the package."""
    home = tmp_path / "home"
    home.mkdir()
    for folder in ("slim_rl", "tools"):
        (home / folder).symlink_to(ROOT / folder)
    program = "from slime_cpu import sources; print(sources.here(), *sources.find(), sources.here())"
    usual = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": f"{home}:{home}/tools"}
    command, options = [sys.executable, "-c", program], {"capture_output": True, "text": True, "check": False}
    return lambda **variables: subprocess.run(command, cwd=home, env=usual | variables, **options)  # type: ignore[call-overload]


def test_sources_that_are_nowhere_are_cloned_at_their_commits(find: Any, tmp_path: Path) -> None:
    remotes = {f"{name.upper()}_GIT": published(tmp_path / name, files) for name, files in _FILES.items()}
    for cloned in (True, False):
        done = find(**remotes)
        assert done.returncode == 0, done.stderr
        before, slime, megatron, after = done.stdout.split()
        assert (before, after) == (str(not cloned), "True")
        assert done.stderr.count("slim-rl: cloning file://") == (2 if cloned else 0), "once"
        assert Path(slime).is_relative_to(tmp_path / "home") and Path(slime, "train.py").read_text() == ""
        assert Path(megatron, "megatron/core/layer.py").read_text() == "width = 2\n", "with slime's patch"


def test_sources_failed_clone_leaves_nothing(find: Any, tmp_path: Path) -> None:
    done = find(SLIME_GIT=f"file://{tmp_path}/none.git@0123abc")
    assert done.returncode != 0
    assert "'git clone --quiet …' failed" in done.stderr
    assert "give slime's and Megatron's sources by SLIME_DIR and MEGATRON_DIR." in done.stderr
    assert not any((tmp_path / "home" / "build" / "upstream").iterdir())


def test_a_servers_port_leaves_room_above_it() -> None:
    assert server._free_port() + 10_000 < 65_536
