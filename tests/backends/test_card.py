"""A model's card: read by the hub's own reader, with a use that runs, results with their intervals, and what made it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl import __version__
from slim_rl.backends.card import CITATION, model_card
from slim_rl.config import parse_config
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import Dialogue
from slim_rl.provenance import here
from tests.paths import ROOT


@pytest.fixture
def played(make_dialogue: Any) -> list[Dialogue]:
    rewards = (0.5, 0.7, 0.9, None)
    dialogues = [
        make_dialogue("[message] What is Ava Li on BLEU?", id=f"d{n}", game_id=f"g{n}", reward=reward)
        for n, reward in enumerate(rewards)
    ]
    dialogues[3].stop_reason = "partner_failed"
    for dialogue in dialogues:
        annotate(dialogue)  # as a log's are
    return [d for d in dialogues if d.reward is not None]


def card(played: list[Dialogue], **settings: Any) -> str:
    config = parse_config({"name": "asker", "policy": {"model": "Qwen/Qwen3-0.6B"}, **settings})
    return model_card(
        config, step=3, results={"after training": played}, before={"before training": played}, made=[here()]
    )


def test_hub_parser_reads_base_model_and_results(played: list[Dialogue]) -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card(played)).data  # raises for a card that is not valid
    assert (data.base_model, data.library_name, data.model_name) == ("Qwen/Qwen3-0.6B", "transformers", "asker")
    found = {result.metric_type: result for result in data.eval_results}
    reward = found["reward"]
    assert reward.metric_value == pytest.approx(0.7) and reward.metric_args["games"] == 3
    assert reward.metric_args["low"] < 0.7 < reward.metric_args["high"] and "95%" in reward.metric_args["interval"]
    assert {"questions", "informative_pairs", "agreed"} <= found.keys()
    assert {result.dataset_config for result in data.eval_results} == {"after training"}, "none of the start's"
    again = hub.ModelCard(f"---\n{data.to_yaml()}\n---\n").data.eval_results
    assert [result.metric_args for result in again] == [result.metric_args for result in data.eval_results]


def test_rows_of_the_start_are_marked_and_what_made_it_is_told(played: list[Dialogue]) -> None:
    text = card(played)
    after, _, before = text.partition("### Before training")
    assert "| after training | 3 |" in after and "(the start)" not in after
    assert "| before training (the start) | 3 |" in before
    assert f"`{here()['command']}`" in text.partition("## Provenance")[2]


def test_what_training_pays_and_for_what_is_in_the_card(played: list[Dialogue]) -> None:
    plain = card(played)
    assert "credit" not in plain and "forced" not in plain
    paid = {
        "reward": "expected_credit",
        "reward_args": {"price": 0.004},
        "exploring_starts": 0.25,
        "exploring_steps": 28,
    }
    text = card(played, train=paid)
    assert (
        "question cost 0.004; per-turn credit (each question is credited with its expected value); a forced first question in 25% of"
        in text
    )
    assert "falling to none within 28 steps" in text


def test_a_card_without_results_has_no_index() -> None:
    text = model_card(parse_config({"name": "new"}), step=1)
    assert "model-index" not in text and "## Results" not in text and "## Provenance" not in text
    assert "What the game tells a player." in text


def test_the_tiny_start_is_no_hubs_model_wherever_the_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = model_card(parse_config({"name": "new", "policy": {"model": "data/warmstart"}}), step=1)
    assert "base_model" not in text and "Starts from: `warmstart`" in text


def test_the_use_that_is_printed_runs(played: list[Dialogue], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    told = [{"role": "user", "content": 'Your scores:\nAva Li: BLEU 3, "Electra" ?'}]
    for dialogue in played:
        dialogue.prompt = told
    text = card(played, limits={"turn_tokens": 8})
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    names: dict[str, Any] = {}
    exec(code.replace("OWNER/NAME", str(ROOT / "data" / "warmstart")), names)
    assert names["messages"] == told
    assert names["turn"].shape[1] - names["inputs"]["input_ids"].shape[1] <= 8
    assert capsys.readouterr().out.strip()


def test_the_card_of_a_game_for_one_names_no_partner(played: list[Dialogue]) -> None:
    text = card(played, environment="examples.secret_number.SecretNumber")
    assert "to play a game for one." in text and "- Partner: `none`" in text
    assert "each later message is the game's." in text and "A dialogue game for one" in text


def test_it_is_cited_in_the_same_words_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    bibtex = CITATION.format(version=__version__)
    assert bibtex in (ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8")
    assert bibtex in model_card(parse_config({"name": "new"}), step=1)
    (paper,) = cited["references"]
    assert cited["title"] in bibtex and paper["title"] in bibtex and str(paper["year"]) in bibtex
    assert all(author["family-names"] in bibtex for author in paper["authors"])


def test_the_citation_file_is_complete() -> None:
    cited = yaml.safe_load(Path(ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys(), "what the format requires"
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert {"version", "license", "abstract", "keywords", "date-released"} <= cited.keys()
    assert cited["version"] == __version__ and all(author.get("name") for author in cited["authors"])
    for reference in cited["references"]:
        assert {"type", "title", "authors"} <= reference.keys()
