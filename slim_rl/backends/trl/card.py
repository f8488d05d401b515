"""The card of a model that a run saves (its README.md, in the form that model hubs read): what it is, how and on what it was
trained, and its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

import slim_rl
from slim_rl.config import Config
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue

_ROWS = (  # (name in `batch_metrics`, name in the table, format)
    ("reward", "reward", ".3f"),
    ("questions", "questions per dialogue", ".2f"),
    ("agreed", "dialogues that end in agreement", ".0%"),
    ("valid_proposals", "valid proposals", ".0%"),
)
_PAID = {  # by `train.reward`, after the algorithm
    "game": "",
    "agreed": "; paid 1 for any agreement, else 0 (a control)",
    "shuffled": "; rewards shuffled within groups (a control)",
    "shuffled_all": "; rewards, zeros too, shuffled within groups (a control)",
}


def model_card(config: Config, before: Sequence[Dialogue] = (), after: Sequence[Dialogue] = ()) -> str:
    """The card of the model that `config` trains, with its held-out dialogues before and after training, if there are any."""
    train, start = config.train, config.policy.model
    front: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["slim_rl", "grpo", "trl", "reinforcement-learning"],
    }
    if not Path(start).exists():  # a hub's name, which hubs link
        front["base_model"] = start
    update = "no update (a control: the policy only plays)" if train.frozen else "GRPO (TRL)"
    adapters = f", LoRA of rank {train.lora.r}, merged" if train.lora else ""
    paid = _PAID[train.reward] + (f"; {train.question_price:g} a question" if train.question_price else "")
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
            f"- Starts from: `{start}`",
            f"- Algorithm: {update}{adapters}{paid}",
            f"- Steps: {train.steps}, each of {train.games_per_step} games × {train.group_size} dialogues",
            f"- Learning rate {train.learning_rate:g} ({train.lr_schedule}), KL coefficient {train.kl_coef:g}, seed {config.seed}",
            "",
            "## Games",
            "",
            f"- Environment: `{config.environment}`",
            f"- Settings: {_settings(config.game)}",
            f"- Partner: `{config.partner.kind}`",
            f"- Trained on {config.data.num_train} games (seed {config.data.seed}); held-out games are none of them.",
            "",
            *_results(before, after),
            "The whole configuration is in the run's folder, as `config.yaml`.",
            "",
        ]
    )


def _settings(game: Any) -> str:
    data = game.model_dump(mode="json") if isinstance(game, BaseModel) else dict(game)
    return ", ".join(f"{key} {value}" for key, value in data.items() if value is not None) or "the defaults"


def _results(before: Sequence[Dialogue], after: Sequence[Dialogue]) -> list[str]:
    if not before or not after:
        return []
    first, last = batch_metrics(before), batch_metrics(after)
    rows = [
        f"| {label} | {first[name]:{form}} | {last[name]:{form}} |"
        for name, label, form in _ROWS
        if name in first and name in last
    ]
    return [
        "## Results",
        "",
        f"Means over {len(after)} held-out games, played before and after training by sampling.",
        "",
        "| | before | after |",
        "|---|---|---|",
        *rows,
        "",
    ]
