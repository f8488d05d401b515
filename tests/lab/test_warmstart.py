"""What a model is taught by is complete."""

from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("trl")
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from slim_rl.backends.trl.scoring import add_scoring
from slim_rl.config import Config, load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.errors import ConfigError, Diverged
from slim_rl.games.matching.partners.scripted import ScriptedPartner
from slim_rl.lab.warmstart import train
from slim_rl.lab.warmstart.batches import in_random_order, scored_batch
from slim_rl.lab.warmstart.train import warmstart
from tests.paths import ROOT


def config_of(folder: Path, games: int, *more: str) -> Config:
    data = [f"data.train={folder}/games.jsonl", "data.num_train=4", "data.eval=null"]
    taught = ["warmstart.lessons={}", f"warmstart.start={ROOT}/data/warmstart", f"warmstart.games={games}"]
    return load_config("matching_local", [*data, *taught, *more])


def test_warmstart_by_adapters_merges_them(tmp_path: Path) -> None:
    more = ("warmstart.batch_size=2", "warmstart.group_size=2", "warmstart.order=random", "train.lora={r: 2}")
    warmstart(config_of(tmp_path, 32, *more), tmp_path / "model")
    before, after = (load_file(at / "model.safetensors") for at in (ROOT / "data" / "warmstart", tmp_path / "model"))
    assert before.keys() == after.keys()
    taught = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert taught and all(name.endswith("_proj.weight") for name in taught), "and the embeddings are as they were"


@pytest.mark.parametrize("how", [["train.lora={r: 2}"], []])
def test_a_warm_start_that_diverges_writes_nothing(tmp_path: Path, how: list[str]) -> None:
    config = config_of(tmp_path, 8, "warmstart.batch_size=2", "warmstart.learning_rate=1e30", *how)
    with pytest.raises(Diverged, match=r"is not a finite number\. .* Lower warmstart\.learning_rate \(1e\+30\)"):
        warmstart(config, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_batch_that_processes_cannot_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = {"WORLD_SIZE": "3", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"warmstart\.batch_size=16 does not divide among 3 processes"):
        warmstart(load_config("matching_local"), tmp_path / "model")


def test_a_demonstration_that_failed_is_refused_with_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: ScriptedPartner, view: View) -> Turn:
        raise PartnerFailure("no answer to that")

    monkeypatch.setattr(ScriptedPartner, "act", fails)
    failed = r"A demonstration of the game \S+ failed \(partner_failed: .*no answer to that"
    with pytest.raises(ConfigError, match=failed):
        warmstart(config_of(tmp_path, 6), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_adaptersscored_batch_has_the_plain_loss() -> None:
    model = AutoModelForCausalLM.from_pretrained(ROOT / "data" / "warmstart", dtype=torch.float32).eval()
    torch.manual_seed(0)
    prompts = [torch.randint(5, 600, (length,)).tolist() for length in (9, 6)]
    rows = []
    for prompt, length in ((prompts[0], 4), (prompts[0], 7), (prompts[1], 5), (prompts[1], 2)):
        reply = torch.randint(5, 600, (length,)).tolist()
        labels = [-100] * len(prompt) + [reply[0], *(-100 for _ in reply[1:-1]), reply[-1]]
        rows.append({"input_ids": prompt + reply, "labels": labels})
    add_scoring(model.requires_grad_(False), temperature=1.0)
    batch = scored_batch(rows)
    logprobs, _ = model(**batch)
    plain = 0.0
    for row in rows:
        logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1]
        plain += torch.nn.functional.cross_entropy(logits, torch.tensor(row["labels"][1:]), reduction="sum")
    assert batch["scored"].sum() == 8
    torch.testing.assert_close(-logprobs.sum(), plain, rtol=1e-5, atol=1e-5)


def test_group_size_repeats_each_game_with_other_draws(tmp_path: Path) -> None:
    more = ("warmstart.lessons={asked: 6}", "warmstart.group_size=4", "warmstart.messages=[0.5, 0.5]")
    config = config_of(tmp_path, 9, *more)
    chat = Chat(AutoTokenizer.from_pretrained(ROOT / "data" / "warmstart"))
    lessons = train._lessons(config, train._curriculum(config))
    rows = list(train._rows_to_learn(config, lessons, train._fresh_games(config, 5, 1), chat))
    end = chat.tokenizer.encode("<|im_end|>")[0]

    def boards(rows: list[dict[str, list[int]]]) -> list[tuple[int, ...]]:
        return [tuple(row["input_ids"][: row["input_ids"].index(end)]) for row in rows]

    assert [len(list(same)) for _, same in groupby(boards(rows))] == [4, 4, 1, 4, 2]
    assert len({tuple(row["input_ids"]) for row in rows}) > 5
    shuffled = in_random_order(rows, seed=0)
    assert shuffled != rows and sorted(map(repr, shuffled)) == sorted(map(repr, rows))
    assert sorted(len(list(same)) for _, same in groupby(boards(shuffled))) == [1, 2, 4, 4, 4]


@pytest.mark.parametrize(("given", "steps"), [(None, 20), (7, 7)])
def test_warmup_follows_steps_unless_given(given: int | None, steps: int) -> None:
    settings = load_config("matching_local", [f"warmstart.warmup_steps={given or 'null'}"]).warmstart
    assert train._warmup_steps(settings.changed(batch_size=4), 800) == steps
    assert train._warmup_steps(settings.changed(batch_size=16, warmup_steps=None), 8000) == 50, "as when it was fixed"
