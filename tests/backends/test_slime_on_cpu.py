"""What of a run without a GPU needs no slime: whether it can be had, its model's shape, its lines on the screen, packages that are not there.

`make test-slime` shows the rest.
"""

import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from slime_cpu import flags, precision, progress, room, run, server, sources
from slime_cpu.architecture import architecture
from slime_cpu.environment import of_the_script

from slim_rl.backends.slime.flags import parse_flags, words
from slim_rl.backends.slime.launch import missing
from slim_rl.config import load_config
from slim_rl.dialogue.log import DialogueLog
from slim_rl.errors import ConfigError, SlimError
from tests.backends.paid_batch import dialogues
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

SITE = ROOT / "tools" / "slime_cpu" / "site"
CONFIG = ROOT / "configs" / "matching_local.yaml"
TINY = ROOT / "data" / "warmstart"
_QWEN3 = """--swiglu --num-layers 4 --hidden-size 128 --ffn-hidden-size 384 --num-attention-heads 4 --group-query-attention --num-query-groups 2
    --kv-channels 32 --use-rotary-position-embeddings --rotary-base 10000 --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-06
    --vocab-size 640 --qk-layernorm"""
_QWEN2 = {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "vocab_size": 151936, "rope_theta": 1e6, "tie_word_embeddings": True}  # fmt: skip


def sourced(script: Path | str, **variables: str) -> dict[str, list[str]]:
    """The flags in a model script's MODEL_ARGS."""
    command = ["bash", "-euc", f'source {script} && echo "${{MODEL_ARGS[@]}}"']
    printed = subprocess.check_output(command, env=os.environ | variables, text=True)
    return parse_flags(printed.replace("1e-6", "1e-06").split())


def test_a_model_has_the_flags_of_its_shape() -> None:
    script = of_the_script(ROOT, ROOT)
    found = sourced(script["MODEL_SCRIPT"], **script, PYTHON=sys.executable, MODEL=str(TINY))
    assert found == parse_flags(_QWEN3.split())


def test_qwen2_has_the_flags_of_slimes_own_file() -> None:
    if not (found := slimes()):
        pytest.skip(NO_SLIME)
    written = sourced(found[0] / "scripts" / "models" / "qwen2.5-0.5B.sh")
    assert parse_flags(words(architecture(_QWEN2))) == written | {"--kv-channels": ["64"]}, "Megatron's default"
    assert "--untie-embeddings-and-output-weights" in architecture(_QWEN2 | {"tie_word_embeddings": False})
    with pytest.raises(ConfigError, match="model_type is llama"):
        architecture({"model_type": "llama"})


@pytest.mark.parametrize(
    ("top_p", "nodes", "told"),
    [
        (0.9, "1", "Add --set policy.top_p=1"),
        (1, "2", "leave it out"),
        (1, "1", "`make run-slime` makes an environment with them"),
    ],
)
def test_what_it_cannot_do_is_said_first(top_p: float, nodes: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "make run-slime" in missing()
    monkeypatch.setattr(sys, "path", [])  # where nothing is installed
    monkeypatch.setenv("NUM_NODES", nodes)
    with pytest.raises(ConfigError, match=told):
        run.check(load_config(CONFIG, [f"policy.top_p={top_p}"]))


def test_megatron_and_sglang_compute_in_one_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "CPU", tmp_path / "cpuinfo")
    config = load_config(ROOT / "configs" / "qwen_local.yaml")
    for features, dtype in (("avx2 avx512f", "float32"), ("avx512_bf16", "bfloat16"), ("avx2 amx_bf16", "bfloat16")):
        flags.CPU.write_text(f"flags\t\t: fpu {features}\n")
        assert flags.precision(config, {}) == dtype, features
    assert flags.precision(config.changed(policy={"dtype": "float32"}), {}) == "float32"
    assert flags.precision(config, {"--sglang-dtype": ["float32"]}) == "float32", "the user's own flag"
    with pytest.raises(ConfigError, match="float32 or bfloat16"):
        flags.precision(config, {"--sglang-dtype": ["float16"]})
    before = torch.get_num_threads()
    for asked, stored in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        args = Namespace(sglang_dtype=asked, params_dtype=torch.bfloat16, slim_rl={"train": {"threads": 2}}, use_opd=1)
        precision.init(args)
        assert (args.params_dtype, torch.get_num_threads()) == (stored, 2)
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("weights", "gib", "disk", "needed"),
    [
        (None, 3, 40 * 869_760 - 1, r"takes 2\.0 GiB of memory and 0\.0 GB of disk, but 3\.0 GiB and 0\.0 GB are free"),
        (None, 3, 40 * 869_760, None),
        (494_032_768, 3, 10**11, r"494 million weights takes 20\.4 GiB of memory and 19\.8 GB of disk, but 3\.0 GiB"),
        (494_032_768, 21, 10**11, None),
    ],
)
def test_a_machine_too_small_for_a_model_is_told_at_once(
    weights: int | None, gib: int, disk: int, needed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.psutil, "virtual_memory", lambda: Namespace(available=gib << 30))
    monkeypatch.setattr(room.psutil, "disk_usage", lambda path: Namespace(free=disk))
    if weights:
        monkeypatch.setattr(room, "count_weights", lambda model: weights)
    if needed:
        with pytest.raises(SlimError, match=needed):
            room.check(TINY, tmp_path / "run")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "checkpoint").write_text("1")  # whose place the next one takes
    if not weights or not needed:
        room.check(TINY, tmp_path / "run")


@pytest.mark.parametrize(
    ("vocabulary", "gigabytes", "limit"),
    [(151_936, 24, 530), (151_936, 8, 512), (151_936, 512, None), (1500, 5, None)],
)
def test_packs_fit_the_machines_memory_and_one_checkpoint_stays(vocabulary: int, gigabytes: int, limit: Any) -> None:
    config = load_config(CONFIG, ["train.save_every=10"])
    found = flags.trainer(config, vocabulary, gigabytes * 2**30)
    assert found.get("--max-tokens-per-gpu") == limit
    assert found["--save-retain-interval"] % 10 == 0 and found["--save-retain-interval"] > config.train.steps


def test_keep_last_of_saved_models_leaves_one(tmp_path: Path) -> None:
    for number in ("9", "19", "99"):
        run.keep_last(tmp_path / "hf")
        (tmp_path / "hf" / number).mkdir(parents=True)
    run.keep_last(tmp_path / "hf")
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["99"]


def test_a_step_is_told_when_its_dialogues_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where its seconds went, by lines as slime prints them, of two processes; the last is still being written."""
    monkeypatch.setattr(progress, "_SECONDS", 0.02)
    path, output, calls = tmp_path / "train.jsonl", tmp_path / "slime.log", list[None]()

    def log(step: int, upto: int | None = None) -> None:
        with DialogueLog(path, from_step=step) as file:  # as a run that goes on: without what it plays again
            for dialogue in dialogues()[:upto]:
                dialogue.step = step
                file.append(dialogue)

    def prints(text: str) -> None:
        with output.open("a") as file:
            file.write(text)

    def heard(number: int) -> list[str]:
        lines, over = list[str](), time.monotonic() + (20 if number else 0.2)
        while len(lines) < max(number, 1) and time.monotonic() < over:
            time.sleep(0.01)
            lines += capsys.readouterr().err.splitlines()
        return [line.removeprefix("slim-rl: ").partition(" reward")[0] for line in lines]

    log(0)
    log(1, upto=3)
    prints("perf 0: {'perf/train_time': 9.0}\n")  # of an earlier start
    with progress.told(path, output, dialogues=8, done=0, after=lambda: calls.append(None)):
        log(1, upto=5)
        assert heard(0) == [], "neither an earlier start's step nor one that is not whole"
        log(1)
        assert heard(1) == ["step    1:"]
        prints(
            "[a] perf 1: {'rollout/x': 1, 'perf/rollout_time': 4.51, 'perf/longest_tokens_per_sec': np.float64(7.5)}\n"
        )
        prints("[b] perf 1: {'perf/save_model_time': 5.7, 'perf/update_weights_time': 0.12, 'perf/actor_train_time': 1.9, "
            "'perf/train_time': np.float64(2.96), 'perf/step_time': 13.3}\n[a] perf 2: {'perf/rollout_time': 4.0}\n")  # fmt: skip
        prints("[b] perf 2: {'perf/train_time': 2.0")
        assert heard(1) == ["step    1: 4.5 s playing, 3.0 s training, 0.1 s new weights, 5.7 s saving"]
        log(2)
        prints(", 'perf/update_weights_time': 0.1}\n")
    spent = "step    2: 4.0 s playing, 2.0 s training, 0.1 s new weights"
    assert heard(2) == ["step    2:", spent] and len(calls) == 3, "after each step, and at the end"


_STAND_INS = {  # an SGLang that answers, a Ray that is none, and a slime that stops
    "sglang/__init__.py": "",
    "sglang/launch_server.py": """
import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
SimpleHTTPRequestHandler.do_GET = lambda self: (self.send_response(200), self.end_headers(), self.wfile.write(b'{"data": [{"id": "tiny"}]}'))
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), SimpleHTTPRequestHandler).serve_forever()
""",
    "slime/utils/arguments.py": "",
    "megatron/__init__.py": "",
    "ray.py": "init = shutdown = get = lambda *args, **kwargs: None",
    "train.py": """
import argparse, ray, sys
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
    raise RunStopped("Training stops: 32 of 32 dialogues failed.")
""",
}
_LATE = """
import os, time
while not os.path.exists(os.environ["SLIME_DIR"] + "/run/slime.log"):  # the job runs
    time.sleep(0.1)
time.sleep(1)
raise SystemExit("no such model")
"""


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, **others: str) -> str:
    """What a run says at its end that is made of the stand-ins, with `others` in the place of some."""
    for name, text in (_STAND_INS | others).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    for name in ("SLIME_DIR", "MEGATRON_DIR"):
        monkeypatch.setenv(name, str(folder))
    changes = [f"data.train={folder}/games.jsonl", "data.num_train=40", "data.eval=null", "policy.top_p=1"]
    changes += ["train.backend=slime"]
    with pytest.raises(SlimError) as said:
        run.train(CONFIG, load_config(CONFIG, changes), changes, [], folder / "run")
    return str(said.value)


def test_a_run_that_stops_says_why_and_if_sglang_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why, folder = "Training stops: 32 of 32 dialogues failed.", tmp_path / "run"
    assert stopped(tmp_path, monkeypatch) == why
    assert run._why("http://127.0.0.1:9", folder, 0, 1) == f"SGLang is gone: see {folder}/sglang.log. {why}"


def test_nothing_is_trained_before_sglang_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = stopped(tmp_path, monkeypatch, **{"sglang/launch_server.py": _LATE})
    assert said.startswith("The SGLang server ended with exit code 1") and said.endswith("no such model")
    assert "Training stops" not in (tmp_path / "run" / "slime.log").read_text(encoding="utf-8")


def test_absent_packages_import_but_cannot_be_called() -> None:
    program = """
import sitecustomize, sgl_kernel.gemm as gemm, triton.runtime
from torchvision.transforms import Resize
kernel, other = triton.jit(lambda x: x), triton.autotune(configs=[], key=["n"])(lambda: 2)
class Own(Resize): pass
assert kernel(1) == 1 and other() == 2
for wrong in (lambda: gemm.multiply(1, 2), Own, lambda: triton.runtime.driver.active):
    try: wrong()
    except RuntimeError as error: print(error)
"""
    path, command = {"PYTHONPATH": f"{SITE}:{SITE.parents[1]}:{ROOT}"}, [sys.executable, "-c", program]
    said = subprocess.check_output(command, env=path, text=True).splitlines()
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
    files = {str(path.relative_to(archived)) for path in (archived / "megatron").rglob("*.py")}
    changed = {file for file in files if (archived / file).read_bytes() != (megatron / file).read_bytes()}
    assert changed == set(re.findall(r"^\+\+\+ b/(.*)$", text, re.MULTILINE))
    with pytest.raises(SlimError, match="set MEGATRON_DIR"):
        sources.find({"SLIME_DIR": str(tmp_path)})


_PATCH = "--- a/megatron/core/layer.py\n+++ b/megatron/core/layer.py\n@@ -1 +1 @@\n-width = 1\n+width = 2\n"
_FILES = {
    "slime": {"train.py": "", "docker/patch/latest/megatron.patch": _PATCH},
    "megatron": {"megatron/core/layer.py": "width = 1\n", "tools/none.py": ""},
}
# a repository, of whose files there is a later commit too
_PUBLISH = """
git init --quiet; git config user.name A; git config user.email a@example.org
git add .; git commit --quiet --message first; git rev-parse HEAD
for file in $(git ls-files); do echo later > $file; done; git commit --all --quiet --message second
"""


def test_sources_are_cloned_once_at_their_commits(tmp_path: Path) -> None:
    """In a folder that has nothing beside it but the package."""
    home, remotes = tmp_path / "home", dict[str, str]()
    home.mkdir()
    for folder in ("slim_rl", "tools"):
        (home / folder).symlink_to(ROOT / folder)
    for repository, files in _FILES.items():
        for name, text in files.items():
            (tmp_path / repository / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / repository / name).write_text(text)
        commit = subprocess.check_output(["bash", "-euc", _PUBLISH], cwd=tmp_path / repository, text=True).strip()
        remotes[f"{repository.upper()}_GIT"] = f"file://{tmp_path / repository}@{commit}"

    def find(**remotes: str) -> subprocess.CompletedProcess[str]:
        program = "from slime_cpu import sources; print(sources.here(), *sources.find(), sources.here())"
        usual = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": f"{home}:{home}/tools"}
        return subprocess.run(
            [sys.executable, "-c", program], cwd=home, env=usual | remotes, capture_output=True, text=True
        )

    failed = find(SLIME_GIT=f"file://{tmp_path}/none.git@0123abc")
    assert failed.returncode and "'git clone --quiet …' failed" in failed.stderr
    assert "give slime's and Megatron's sources by SLIME_DIR and MEGATRON_DIR." in failed.stderr
    assert not any((home / "build" / "upstream").iterdir())
    for here, clones in (("False", 2), ("True", 0)):
        done = find(**remotes)
        assert done.stderr.count("slim-rl: cloning file://") == clones, done.stderr
        before, slime, megatron, after = done.stdout.split()
        assert (before, after) == (here, "True")
        assert Path(slime).is_relative_to(home) and Path(slime, "train.py").read_text() == ""
        assert Path(megatron, "megatron/core/layer.py").read_text() == "width = 2\n", "with slime's patch"


def test_a_servers_port_leaves_room_above_it() -> None:
    assert server._free_port() + 10_000 < 65_536
