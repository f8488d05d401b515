"""Model card of a trained model: initial model, config, results with intervals, and provenance."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Template

import slim_rl
from slim_rl import bundled, provenance
from slim_rl.config import ROOT_KEY, Config
from slim_rl.dialogue.measures import annotated, measures, not_measured, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import interval, plain, without_passwords
from slim_rl.statistics import clustered_mean

_CARD = Path(__file__).with_name("card.md")
_LICENCE = ("license", "license_name", "license_link")  # keys of the front matter


def model_card(
    config: Config,
    *,
    step: int,
    results: Mapping[str, Sequence[Dialogue]] | None = None,
    made: Sequence[provenance.Entry] = (),
) -> str:
    """Returns the card of the model that `config` trains.

    Args:
        step: number of updates.
        results: row label -> held-out dialogues.
        made: provenance records from the folder of the log.
    """
    base, front = _start(config.policy.model)
    tags = ["slim_rl", "reinforcement-learning", config.train.backend]
    front |= {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    played = {name: [each for each in those if not each.failed] for name, those in (results or {}).items()}
    keys = config.model_dump(mode="json", exclude_defaults=True)
    template = Template(_CARD.read_text(encoding="utf-8"), trim_blocks=True, keep_trailing_newline=True)
    return template.render(
        config=config,
        base=base,
        front=yaml.safe_dump(front, sort_keys=False).strip(),
        version=slim_rl.__version__,
        step=step,
        heads=["played", "games", *(measure.heading for measure in shown_in("card"))],
        rows=[_row(name, those) for name, those in played.items() if those],
        settings=without_passwords(yaml.safe_dump({ROOT_KEY: keys}, sort_keys=False)).strip(),
        made=[provenance.sentence(entry) for entry in made[:3]],
    )


def _start(model: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of the initial model, and front matter: its hub name and licence, if known."""
    path = Path(bundled.model(model))
    repository = path.parent.parent.name  # in the hub's cache: models--OWNER--NAME/snapshots/COMMIT
    hub = "" if path.exists() else model
    if path.parent.name == "snapshots" and repository.startswith("models--"):
        hub = repository.removeprefix("models--").replace("--", "/")
    card: dict[str, Any] = {}
    if (path / "README.md").is_file():
        from huggingface_hub import ModelCard

        with suppress(Exception):  # a base model's README may be anything
            card = ModelCard.load(path / "README.md", ignore_metadata_errors=True).data.to_dict()
    licence = {key: card[key] for key in _LICENCE if card.get(key)}
    return hub or path.name, ({"base_model": hub} if hub else {}) | licence


def _row(name: str, dialogues: Sequence[Dialogue]) -> list[str]:
    """Returns a row of the table: means over games, with the interval of the primary measures."""
    data = pd.DataFrame({"game_id": d.game_id, **measures(d)} for d in dialogues)
    absent = not_measured(dialogues[0].environment, map(annotated, dialogues))
    cells = []
    for measure in shown_in("card"):
        values = data[measure.name].astype(float) * (float("nan") if measure.name in absent else 1.0)
        mean = clustered_mean(values, data["game_id"], measure.within)
        ends = f" {interval(mean.low, mean.high, measure.share)}" if measure.role == "primary" else ""
        cells.append(plain(mean.value, measure.share) + ends)
    return [name, str(len(dialogues)), *cells]
