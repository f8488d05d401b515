"""The card of a trained model (its README.md, in the form that model hubs read): what it is, how and on what it was trained, its
results, and the licence of the model it was trained from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import slim_rl
from slim_rl.backends.checkpoints import hub_name
from slim_rl.config import Config
from slim_rl.dialogue.measures import measures, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import interval, plain
from slim_rl.statistics import clustered_mean

_PAID = {  # by `train.reward`, after the algorithm
    "game": "",
    "agreed": "; paid 1 for any agreement, else 0 (a control)",
    "shuffled": "; rewards shuffled within groups (a control)",
    "shuffled_all": "; rewards, zeros too, shuffled within groups (a control)",
}
_LICENCE_KEYS = ("license", "license_name", "license_link")


def model_card(
    config: Config,
    *,
    step: int,
    results: Mapping[str, Sequence[Dialogue]] | None = None,
    before: Mapping[str, Sequence[Dialogue]] | None = None,
) -> str:
    """The card of the model that `config` trains.

    Args:
        step: updates made to it.
        results: what each row of the table is, and its held-out dialogues.
        before: the same of the model that it starts from, which has its own table.
    """
    train, start = config.train, config.policy.model
    name, front = base_model(start)
    front = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["slim_rl", "reinforcement-learning", _algorithm(config).lower(), train.backend],
        **front,
    }
    update = "no update (a control: the policy only plays)" if train.frozen else _algorithm(config)
    adapters = f", LoRA of rank {train.lora.r}, merged" if train.lora else ""
    paid = _PAID[train.reward] + (f"; {train.question_price:g} a question" if train.question_price else "")
    done = str(step) if step == train.steps else f"{step} of {train.steps}"
    return "\n".join(
        [
            "---",
            yaml.safe_dump(front, sort_keys=False, allow_unicode=True).strip(),
            "---",
            "",
            f"# {config.name}",
            "",
            f"A dialogue policy trained by reinforcement learning with slim_rl {slim_rl.__version__}, to play a game with a partner.",
            "",
            "## Training",
            "",
            f"- Starts from: `{name}`",
            f"- Algorithm: {update} ({'TRL' if train.backend == 'trl' else train.backend}){adapters}{paid}",
            f"- Steps: {done}, each of {train.games_per_step} games × {train.group_size} dialogues",
            f"- Learning rate {train.learning_rate:g} ({train.lr_schedule}), KL coefficient {train.kl_coef:g}, seed {config.seed}",
            "",
            "## Games",
            "",
            f"- Environment: `{config.environment}`",
            f"- Settings: {_settings(config.game_settings)}",
            f"- Partner: `{_partner(config)}`",
            f"- Trained on {config.data.num_train} games (seed {config.data.seed}); held-out games are none of them.",
            "",
            *_results(name, results or {}, before or {}),
            "## Licence",
            "",
            _licence(name, front),
            "",
        ]
    )


def base_model(start: str) -> tuple[str, dict[str, Any]]:
    """What to call the model that training started from, and what a card's front matter says of it: its hub name and its licence,
    where they are known.
    """
    path = Path(start)
    hub = hub_name(path) if path.exists() else start
    front = {"base_model": hub} if hub else {}  # which hubs link
    card = _front_matter(path / "README.md")
    return hub or path.name, front | {key: card[key] for key in _LICENCE_KEYS if card.get(key)}


def _front_matter(card: Path) -> dict[str, Any]:
    try:
        text = card.read_text(encoding="utf-8")
        data = yaml.safe_load(text.split("---", 2)[1]) if text.startswith("---") else None
    except (OSError, UnicodeDecodeError, IndexError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def _licence(name: str, front: Mapping[str, Any]) -> str:
    known = front.get("license_name") or front.get("license")
    if known:
        return f"That of `{name}`, which it was trained from: {known}."
    return f"That of `{name}`, which it was trained from; its card here names none, so look at the original's."


def _algorithm(config: Config) -> str:
    if config.train.backend != "verl":
        return "GRPO"
    return {"gae": "PPO"}.get(config.verl.adv_estimator, config.verl.adv_estimator.upper())


def _partner(config: Config) -> str:
    kind = config.partner.kind
    return f"openai, {config.partner.openai.model}" if kind == "openai" else kind


def _settings(game: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in game.items() if value is not None) or "the defaults"


def _results(
    base: str, results: Mapping[str, Sequence[Dialogue]], before: Mapping[str, Sequence[Dialogue]]
) -> list[str]:
    trained, start = _table(results), _table(before)
    if not trained and not start:
        return []
    said = "Means over held-out games, played by sampling; intervals are clustered by game."
    of_start = ["### Before training", "", f"Of `{base}`, which it starts from, and not of this model.", "", *start]
    return ["## Results", "", said, "", *trained, *(of_start if start else [])]


def _table(results: Mapping[str, Sequence[Dialogue]]) -> list[str]:
    rows = [_row(name, dialogues) for name, dialogues in results.items() if any(not d.failed for d in dialogues)]
    if not rows:
        return []
    heads = ["", "games"]
    for measure in shown_in("card"):
        heads += [measure.heading, *(["95%"] if measure.role == "primary" else [])]
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows, ""]


def _row(name: str, dialogues: Sequence[Dialogue]) -> str:
    data = pd.DataFrame({"game_id": d.game_id, **measures(d)} for d in dialogues if not d.failed)
    cells = []
    for measure in shown_in("card"):
        mean = clustered_mean(data[measure.name].astype(float), data["game_id"], measure.bounded, measure.signed)
        cells.append(plain(mean.value, measure.share))
        if measure.role == "primary":
            cells.append(interval(mean.low, mean.high, measure.share))
    return f"| {name} | {len(data)} | {' | '.join(cells)} |"
