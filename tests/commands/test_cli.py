"""The command line: light to start, one sentence for what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl import __version__, cli
from slim_rl.config import PolicyConfig, parse_config
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.loop import Speaker
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError
from slim_rl.games.matching.generate import generate_games
from slim_rl.policies import check_model_name
from slim_rl.policies.transformers import load_model
from tests.fakes.disk import largest_file
from tests.fakes.hub import Hub, unreachable
from tests.paths import ROOT

COMMANDS = [
    "generate", "train", "arms", "watch", "evaluate", "export", "play", "show", "analyze", "results", "compare", "audit", "incentives", "bench", "leaderboard", "init", "doctor",
    "warmstart", "convert", "dialogues",
]  # fmt: skip
LOCAL = "configs/matching_local.yaml"
Done = subprocess.CompletedProcess[str]


def process(*arguments: str | Path, cwd: Path = ROOT, **options: Any) -> Done:
    """Runs a command as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "slim_rl.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
        **options,
    )


def test_the_core_is_light() -> None:
    core = ("slim_rl", "slim_rl.cli", "slim_rl.games.matching", "slim_rl.games.matching.questions", "slim_rl.partners")
    core += ("slim_rl.incentives", "slim_rl.backends.slime.launch")
    heavy = (
        "torch",
        "transformers",
        "trl",
        "verl",
        "slime",
        "sglang",
        "openai",
        "matplotlib",
        "ray",
        "pandas",
        "scipy",
    )
    code = f"""
import importlib, sys
for module in {core!r}:
    importlib.import_module(module)
    print(module, [m for m in {heavy!r} if m in sys.modules])
"""
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert printed.splitlines() == [f"{module} []" for module in core]


def test_help_names_every_command(slim_rl) -> None:
    result = slim_rl("--help")
    assert result.returncode == 0
    assert all(f"  {command} " in result.stdout for command in COMMANDS)


def test_help_imports_no_command() -> None:
    code = "import sys; from slim_rl import cli; cli.main(['--help']); print(sorted(m for m in sys.modules if m in ('typer', 'pydantic', 'slim_rl.config')))"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert printed.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_begins_as_the_list_says(slim_rl, command) -> None:
    result = slim_rl(command, "--help")
    assert result.returncode == 0
    assert cli.about(command) in " ".join(result.stdout.split())


def test_version() -> None:
    assert process("--version").stdout == f"slim-rl {__version__}\n"


def test_an_unknown_command_is_answered_by_the_known_ones(slim_rl) -> None:
    result = slim_rl("trian")
    assert result.returncode == 2
    assert "no command 'trian'; did you mean train? The commands are generate, incentives, train," in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "nowhere.yaml"), "Cannot read the config nowhere.yaml"),
        (("train", "configs/matching_local.yaml", "--set", "game.m=3"), "'game.m' is not a key"),
        (("train", "configs/matching.yaml", "--backend", "slime", "--", "--num-gpus", "0"), "NUM_GPUS is '0'"),
        (("train", "configs/matching_local.yaml", "a=b"), "override for verl"),
        (("arms", "configs/matching_local.yaml", "--seeds", "a"), "whole numbers"),
        (("analyze", "--log-dir", "nowhere"), "nowhere"),
        (("audit", "nowhere"), "nowhere"),
        (("generate",), "--output"),
        (("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--partner", "loud"), "partner.kind 'loud'"),
        (("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--output", "x.csv"), "name a folder"),
        (("warmstart", LOCAL), "--overwrite"),
        (("warmstart", LOCAL, "--output", "x.csv"), "name a folder"),
        (("convert", "recorded.jsonl", "--output", "x.csv"), "does not end in .jsonl"),
        (("generate", "--num-games", "1", "--output", "x.csv"), "jsonl or parquet"),
        (("generate", "--num-games", "1", "--output", "README.md/x.jsonl"), "README.md/x.jsonl"),
        (("play", LOCAL, "--set", "partner.kind=self"), "choose a partner"),
        (("audit",), "No dialogue logs"),
        (("play", LOCAL, "--game", "99999"), "--game 99999 does not exist: the config has 400 games, 0 to 399."),
        (("play", LOCAL, "--model", "data/warmstartt"), "did you mean data/warmstart?"),
        (("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--games", "99999"), "ask for at most 400"),
        (("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--games", "99999", "--dry-run"), "at most 400"),
        (("evaluate", LOCAL, "--checkpoint", "/nope", "--dry-run"), "--checkpoint '/nope' is not a folder here"),
        (("train", LOCAL, "--dry-run", "--set", "policy.model=/nope"), "policy.model '/nope' is not a folder here"),
        (("train", LOCAL, "--dry-run", "--set", "policy.model=./runs/modl"), "'./runs/modl' is not a folder here"),
        (("train", LOCAL, "--dry-run", "--set", "train.stepz=3"), "did you mean 'train.steps'?"),
        (
            ("train", "configs/verl_ppo.yaml", "--dry-run", "--set", "policy.model=/nope"),
            "'/nope' is not a folder here",
        ),
        (
            ("train", "configs/matching.yaml", "--backend", "slime", "--dry-run", "--", "--model", "/nope"),
            "MODEL '/nope'",
        ),
        (("train", LOCAL, "--backend", "tlr"), "did you mean trl?"),
        (("arms", LOCAL, "--arm", "mut", "--dry-run"), "did you mean mute?"),
        (("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--partner", "shi"), "did you mean shy?"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_1(slim_rl, arguments, says) -> None:
    check_one_sentence(slim_rl(*arguments), says)


def test_so_it_is_in_a_shell() -> None:
    check_one_sentence(process("train", "nowhere.yaml"), "Cannot read the config nowhere.yaml")


def check_one_sentence(result: Done, says: str) -> None:
    assert result.returncode == 1, result.stderr
    assert says in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x93\x00\xff\x12", "not text"),
        (b"a: " + b"[" * 5000, "nested too deeply"),
        (b"a: &a {b: *a}", "nested too deeply"),
        (b"a: 2024-99-99", "not valid YAML"),
    ],
    ids=["binary", "deep", "endless", "no date"],
)
def test_a_file_that_is_no_config_is_one_sentence(slim_rl, tmp_path, content, says) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    check_one_sentence(slim_rl("arms", path, "--dry-run"), says)


@pytest.mark.parametrize(
    "described", ["[]", "null", '{"model_type": 3}', '{"model_type": "qwen3", "hidden_size": "x"}']
)
def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path, described) -> None:
    (tmp_path / "config.json").write_text(described)
    with pytest.raises(ConfigError, match="is not a folder with a model"):
        load_model(PolicyConfig(model=str(tmp_path)))


@pytest.mark.parametrize("number", ["-1", "0", "many"])
def test_a_number_of_games_that_is_none_is_refused(slim_rl, number) -> None:
    result = slim_rl("evaluate", LOCAL, "--checkpoint", "data/warmstart", "--num-games", number)
    assert result.returncode == 2 and "Traceback" not in result.stderr and "--num-games" in result.stderr


def test_a_full_disk_is_one_sentence_that_names_the_file(slim_rl, tmp_path) -> None:
    games = tmp_path / "games.jsonl"
    assert slim_rl("generate", "--num-games", "9", "--n", "3", "--output", games).returncode == 0
    log = tmp_path / "logs" / "log.jsonl"
    log.parent.mkdir()
    log.write_text(json.dumps(synthetic_line()) + "\n")
    for arguments, named in (
        (("generate", "--num-games", "9", "--n", "3", "--output", games), games),
        (("analyze", log.parent, "--output", tmp_path / "plots"), tmp_path / "plots"),
    ):
        with largest_file(1024):
            result = slim_rl(*arguments)
        assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
        assert str(named) in result.stderr and "choose another" in result.stderr
    assert len(games.read_text().splitlines()) == 9, "what was there is still there"


def synthetic_line() -> dict[str, Any]:
    """A short dialogue as it is logged."""
    config = parse_config({"game": {"n": 3}, "partner": {"kind": "mute"}})
    game = next(iter(generate_games(1, config.game, seed=1)))
    worker = RolloutWorker(config, None, Speaker(make_partner(config)))
    (dialogue,) = asyncio.run(worker.play(worker.episode(GameRow(game.id, 0, game.to_dict(), []), "x")))
    return dialogue.to_dict()


def test_generate_writes_games(slim_rl, tmp_path) -> None:
    output = tmp_path / "games.jsonl"
    result = slim_rl("generate", "--num-games", "3", "--n", "3", "--output", str(output))
    assert result.returncode == 0, result.stderr
    assert len(output.read_text().splitlines()) == 3
    script = ROOT / "scripts" / "generate_data.py"
    again = tmp_path / "again.jsonl"
    assert "wrote" not in result.stdout and result.stdout.strip() == str(output)
    subprocess.run([sys.executable, script, "--num_games", "3", "--n", "3", "--output", str(again)], check=True)
    assert again.read_bytes() == output.read_bytes()


def test_generate_makes_the_files_of_a_config_anew_when_told_to(slim_rl, tmp_path) -> None:
    config = tmp_path / "config.yaml"
    data = {"train": f"{tmp_path}/t.jsonl", "eval": f"{tmp_path}/e.jsonl", "num_train": 3, "num_eval": 2}
    config.write_text(json.dumps({"game": {"n": 3}, "data": data}))
    assert slim_rl("generate", config).stdout.split() == [data["train"], data["eval"]]
    refused = slim_rl("generate", config, "--set", "game.n=2")
    assert refused.returncode == 1 and "slim-rl generate CONFIG --overwrite" in refused.stderr
    assert slim_rl("generate", config, "--set", "game.n=2", "--overwrite").returncode == 0
    more = process(
        "generate", "--config", config, "-s", "game.n=2", "-s", "data.num_train=4", "-s", "train.games_per_step=2"
    )
    assert more.returncode == 0
    assert more.stderr.startswith("slim-rl: ") and "has 3 of the 4 games" in more.stderr


def test_arms_can_be_looked_at_first(slim_rl) -> None:
    result = slim_rl("arms", "configs/matching_local.yaml", "--arm", "mute", "--seeds", "0,1", "--dry-run")
    assert result.returncode == 0 and result.stdout.count("partner.kind=") == 2


def test_without_the_local_extra_it_says_what_to_install() -> None:
    # None in sys.modules is how Python remembers that a module is not there
    code = "import sys; sys.modules['torch'] = None; from slim_rl import cli; sys.argv[1:] = ['train', 'configs/matching_local.yaml']; cli.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 1
    assert "needs torch" in result.stderr
    assert "Traceback" not in result.stderr


def test_games_are_dealt_by_one_process_at_least(slim_rl, tmp_path: Path) -> None:
    refused = slim_rl("generate", "--num-games", "1", "--output", tmp_path / "games.jsonl", "--workers", "0")
    assert refused.returncode != 0
    assert "--workers" in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "games.jsonl").exists()


def test_a_dry_run_says_how_much_is_played_and_where_the_rest_is(slim_rl, monkeypatch, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    words = ("train", "matching_local", "--dry-run", "--set", "train.steps=10")
    done = slim_rl(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "matching_local: 10 steps of 128 dialogues (16 games, 8 each): 1,280 in training, 800 on held-out games.",
        "The run is written to runs/matching_local, its dialogues to logs/matching_local.",
        "The whole config and TRL's arguments are in runs/matching_local.dry-run.yaml.",
    ]
    assert "slim-rl: train.steps 10 is too few" in done.stderr
    rest = yaml.safe_load((tmp_path / "runs" / "matching_local.dry-run.yaml").read_text())
    assert (rest["slim_rl"]["train"]["warmup_steps"], rest["trl"]["warmup_steps"]) == (10, 5)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["matching_local.dry-run.yaml"]

    config = parse_config(rest["slim_rl"])
    (run := tmp_path / config.run_dir).mkdir()
    config.write(run / "config.yaml")
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": n, "step_time": 6.0}) + "\n" for n in (1, 2)))
    again = slim_rl(*words)
    assert "about 1.0 minutes, at 6.0 s a step as in the run that is in runs/matching_local" in again.stdout
    other = slim_rl(*words, "--set", "train.group_size=4")
    assert "minutes" not in other.stdout, "steps of another size take another time"


def test_a_mistyped_model_costs_no_minute_where_the_hub_cannot_be_reached(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with unreachable() as (url, tried):
        own = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = process("play", "matching_local", "--model", "modl", cwd=tmp_path, env=os.environ | own)
    assert len(tried) <= 2, "the hub's own clients try again and again, for a minute"
    assert done.returncode == 1 and "Retrying" not in done.stderr
    assert "'modl' is not a reachable hub name" in done.stderr.splitlines()[-1]


def test_a_name_that_the_hub_does_not_know_is_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with Hub() as hub:
        own = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = process("play", "matching_local", "--model", "owner/modl", cwd=tmp_path, env=os.environ | own)
        assert [path for path in hub.asked if "modl" in path] == ["/api/models/owner/modl"], "one quick try"
    assert done.returncode == 1
    assert "policy.model 'owner/modl' is neither a folder here nor a model that the hub shows you" in done.stderr


@pytest.mark.parametrize("name", ["/nope", "./modl", "../modl", "~/modl", "runs/x/modl", "a/b/c", "runs/modl"])
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "runs" / "x" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"'{name}' is not a folder here") as caught:
        check_model_name(name)
    assert ("did you mean runs/x/model?" in str(caught.value)) == (name == "runs/x/modl")
    check_model_name("runs/x/model")
    check_model_name("data/warmstart")  # ours, from any folder


def interrupted(folder: Path, ready: Path, *words: str) -> tuple[int, list[str]]:
    """The exit code and last words of a command that Ctrl-C is pressed in once `ready` holds something."""
    with (folder / "out").open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "slim_rl.cli", *words],
            cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=out, stderr=out, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        deadline = time.monotonic() + 180
        while not (ready.exists() and ready.stat().st_size) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)
        child.wait(60)
    return child.returncode, (folder / "out").read_text().replace("\r", "\n").splitlines()


SHORT = [
    *("--set", "train.games_per_step=2", "--set", "train.group_size=2", "--set", "train.micro_batch=4", "--set", "train.processes=1"),
    *("--set", "train.save_every=1", "--set", "train.eval_games=2", "--set", "data.num_train=20", "--set", "data.num_eval=300"),
]  # fmt: skip


def test_an_interrupted_run_says_how_to_go_on_and_the_next_start_from_where(slim_rl, monkeypatch, tmp_path) -> None:
    pytest.importorskip("trl")
    words = ["train", "matching_local", *SHORT, "--set", "train.steps=900"]
    mark = tmp_path / "runs" / "matching_local" / "checkpoints" / "checkpoint-2" / "trainer_state.json"
    code, said = interrupted(tmp_path, mark, *words)
    assert code == 130 and not any("Traceback" in line for line in said)
    assert any(line.endswith("slim-rl: interrupted; the same command goes on from the last checkpoint, or starts again where "
                             "there is none yet.") for line in said)  # fmt: skip
    number = max(int(whole.parent.name.rpartition("-")[2]) for whole in mark.parents[1].glob("*/COMPLETE"))
    monkeypatch.chdir(tmp_path)
    again = slim_rl(*words[:-1], f"train.steps={number + 1}")
    assert again.returncode == 0, again.stderr
    (said_then,) = (line for line in again.stderr.splitlines() if "goes on from step" in line)
    assert f"goes on from step {number} of {number + 1}: " in said_then
    assert f"checkpoint-{number} is its last checkpoint (--fresh starts over)" in said_then
    steps = [json.loads(line)["step"] for line in (mark.parents[2] / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, number + 2))


def test_an_interrupted_evaluation_says_how_to_go_on(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = [
        "evaluate",
        "matching_local",
        *SHORT,
        "--checkpoint",
        "data/warmstart",
        "--games",
        "300",
        "--num-trials",
        "50",
        "--concurrency",  # so that the first dialogue is soon over
        "8",
    ]
    code, said = interrupted(tmp_path, tmp_path / "logs" / "evaluation" / "warmstart_shy_free.jsonl", *words)
    assert code == 130
    assert any(line.endswith("interrupted; what was played is in logs/evaluation, and the same command plays the rest.")
               for line in said)  # fmt: skip
