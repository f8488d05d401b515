"""A dry run makes the checks of a start, on every backend; a start of each is refused by the same sentences."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.cli import main
from tests.fakes.cluster import write_model

BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"needs {name}"))
    for name in ("trl", "verl")
] + ["slime"]
REFUSED = {
    "missing model": ("policy.model=./nope", "policy.model './nope' is not a folder here"),
    "no model in folder": ("policy.model=empty", "holds no model's config.json"),
    "other board": ("game.n=4", "small.jsonl was made with n=3, but the config has n=4"),
    "few games": ("train.games_per_step=9", "too few for a step of train.games_per_step=9"),
    "few games to make": (
        "data={train: new.jsonl, num_train: 1}",
        "new.jsonl has 1 game, too few for a step",
    ),
    "no key": ("partner.kind=openai", "No key for https://api.openai.com/v1"),
    "partner's arguments": ("partner.args={foo: 1}", "does not suit partner.kind=shy"),
    "no log to replay": ("partner.kind=replay", "partner.replay is not set"),
    "no prompt": ("partner={kind: openai, openai: {base_url: 'http://localhost:9', prompt: none.md}}", "none.md"),
    "no cassette": (
        "partner={kind: openai, openai: {cassette: none.sqlite, cassette_mode: replay}}",
        "none.sqlite does not exist",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config, its games and its model."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "NUM_GPUS": "2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "RAY_ADDRESS", "SLIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    model = write_model(tmp_path, "Qwen3-0.6B")
    (tmp_path / "empty").mkdir()
    config: dict[str, Any] = {
        "game": {"n": 3},
        "data": {"train": "small.jsonl", "num_train": 8},
        "policy": {"model": str(model)},
        "train": {"games_per_step": 2, "group_size": 4, "steps": 2, "eval_games": 0},
        "log": {"dir": "dialogues"},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({"slim_rl": config}))
    assert run("generate", "small.yaml") == 0
    return tmp_path


def run(*words: str) -> int:
    try:
        main(words)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", REFUSED)
def test_dry_run_of_what_cannot_start_fails(
    folder: Path, backend: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = REFUSED[case]
    before = sorted(folder.rglob("*"))
    how = ("--dry-run", "--print-flags") if backend == "slime" else ("--dry-run",)  # what its launch script asks for
    assert run("train", "small.yaml", "--backend", backend, *how, "--set", change) == 1
    printed = capsys.readouterr()
    assert says in printed.err.splitlines()[-1], printed.err
    assert "Traceback" not in printed.err and sorted(folder.rglob("*")) == before


def test_trl_dry_run_of_a_model_without_a_tokenizer_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    assert run("train", "small.yaml", "--dry-run") == 1
    assert "has no chat template" in capsys.readouterr().err


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_dry_run_offline_says_what_it_could_not_look_up(
    folder: Path, backend: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = ("train", "small.yaml", "--backend", backend, "--dry-run", "--set", "policy.model=nobody/Qwen3-4B")
    assert run(*words) == 0
    printed = capfd.readouterr()
    assert "could not be reached to look up nobody/Qwen3-4B" in printed.err and "nobody/Qwen3-4B" in printed.out


def test_printed_fix_repeats_the_changes_and_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "small.yaml", "--set", "game.n=4") == 1
    said = capsys.readouterr().err
    assert "(--set data.train=small-n4.jsonl)" in said
    assert "`slim-rl generate small.yaml --set game.n=4 --overwrite`" in said
    assert run("generate", "small.yaml", "--set", "game.n=4", "--set", "data.train=small-n4.jsonl") == 0
    assert run("generate", "small.yaml", "--set", "game.n=4", "--overwrite") == 0
    assert run("generate", "small.yaml", "--set", "game.n=4") == 0


@pytest.mark.parametrize(
    ("variable", "backend", "near"),
    [("NUM_GPU", "slime", "NUM_GPUS"), ("SAVE_DRI", "slime", "SAVE_DIR"), ("POLICY_MODELS", "verl", "POLICY_MODEL")],
)
def test_environment_misspelt_setting_is_refused(
    folder: Path, variable: str, backend: str, near: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, "4")
    assert run("train", "small.yaml", "--backend", backend, "--dry-run", *["--print-flags"] * (backend == "slime")) == 1
    assert f"{variable} is not a setting; did you mean {near}?" in capsys.readouterr().err


VERL = [
    ("data.seed=3", "names a key of slim_rl and another of verl; give --set data.seed=3"),
    ("data.seed", "neither an option nor key=value"),
    ("data.sed=3", "Key 'sed' is not in struct"),
    ("NUM_GPU=4", "Key 'NUM_GPU' is not in struct"),
    ("--dry-rum", "neither an option nor key=value"),
    ("actor_rollout_ref.rollout.name=hf", "verl.engine: Input should be 'sglang' or 'vllm' (got 'hf')"),
    ("verl.overrides={actor_rollout_ref.rollout.name: hf}", "verl.engine: Input should be 'sglang' or 'vllm'"),
]


@pytest.mark.parametrize(("word", "says"), VERL)
def test_verl_word_that_is_no_key_is_refused(
    folder: Path, word: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("verl")
    assert run("train", "small.yaml", "--backend", "verl", "--dry-run", "--", word) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["data.train_batch_size=4"], ["--set", "verl.overrides={data.train_batch_size: 4}"], ["train.games_per_step=4"]]
)  # fmt: skip
def test_verl_batch_by_any_name_moves_the_mini_batch(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("verl")
    assert run("train", "small.yaml", "--backend", "verl", "--dry-run", *words) == 0
    printed = capsys.readouterr().out
    for key in ("data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"):
        assert f"{key}=4\n" in printed


def test_generate_with_test_games_writes_two_parquet_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("generate", "small.yaml", "--num-train", "5", "--num-test", "3", "--format", "parquet", "--output")
    assert run(*words, "both") == 0
    rows = {name: parquet.read_table(folder / "both" / f"{name}.parquet").to_pylist() for name in ("train", "test")}
    assert [len(rows[name]) for name in ("train", "test")] == [5, 3]
    games = [row["extra_info"]["game_id"] for name in rows for row in rows[name]]
    assert len(set(games)) == 8, "no game is in both"
    assert {row["extra_info"]["split"] for row in rows["test"]} == {"eval"}
    assert run(*words, "one.parquet") == 1
    assert "--output one.parquet is a file, but --num-test writes two" in capsys.readouterr().err
