"""Model card of a trained model: its README.md, in the form that model hubs read.

It holds the use, the training, the results, the citation, and the licence of the base model. The front matter's model-index has the
trained model's results, each with its interval. The results of the initial policy stand in a table of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import slim_rl
from slim_rl import bundled, provenance
from slim_rl.backends.checkpoints import hub_name
from slim_rl.config import NOBODY, Config, TrainConfig
from slim_rl.dialogue.measures import Measure, annotated, measures, not_measured, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.formats import count, interval, known, plain
from slim_rl.statistics import Estimate, clustered_mean

CITATION = """\
@software{{slim_rl,
  title = {{slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?}},
  author = {{{{The slim_rl authors}}}},
  version = {{{version}}},
  year = {{2026}}
}}
@article{{lin2024decision,
  title = {{Decision-Oriented Dialogue for Human-AI Collaboration}},
  author = {{Lin, Jessy and Tomlin, Nicholas and Andreas, Jacob and Eisner, Jason}},
  journal = {{Transactions of the Association for Computational Linguistics}},
  volume = {{12}},
  year = {{2024}}
}}"""
_USE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "OWNER/NAME"  # this repository, or the folder that this card lies in
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name)
messages = {messages}
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
turn = model.generate(**inputs, do_sample=True, temperature={temperature:g}, top_p={top_p:g}, top_k=0, max_new_tokens={tokens})
print(tokenizer.decode(turn[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
```
"""
_ANY = {"role": "user", "content": "What the game tells a player."}
_MOST_MADE = 3  # commands that trained it
_LICENCE_KEYS = ("license", "license_name", "license_link")


def model_card(
    config: Config,
    *,
    step: int,
    results: Mapping[str, Sequence[Dialogue]] | None = None,
    before: Mapping[str, Sequence[Dialogue]] | None = None,
    made: Sequence[provenance.Entry] = (),
) -> str:
    """Returns the card of the model that `config` trains.

    Args:
        step: number of updates.
        results: row label -> held-out dialogues.
        before: the same for the initial model, which gets its own table.
        made: provenance records from the folder of the log.
    """
    from huggingface_hub import ModelCard, ModelCardData

    train, start = config.train, config.policy.model
    name, base = base_model(start)
    results = {
        row: played for row, dialogues in (results or {}).items() if (played := [d for d in dialogues if not d.failed])
    }
    front = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["slim_rl", "reinforcement-learning", _algorithm(config).lower(), train.backend],
        model_name=config.name if results else None,
        eval_results=_evaluations(config, results) or None,
        **base,
    )
    update = "no update (a control: the policy only plays)" if train.frozen else _algorithm(config)
    adapters = f", LoRA of rank {train.lora.r}, merged" if train.lora else ""
    paid = make_training_reward(config).description() + _explored(train)
    done = str(step) if step == train.steps else f"{step} of {train.steps}"
    text = "\n".join(
        [
            "---",
            front.to_yaml(),
            "---",
            "",
            f"# {config.name}",
            "",
            f"A dialogue policy trained by reinforcement learning with slim_rl {slim_rl.__version__}, to play a {_what_game(config)}.",
            "",
            "## Use",
            "",
            *_use(config, results),
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
            *_results(name, results, before or {}),
            *(
                ["## Provenance", "", *(f"- {provenance.sentence(entry)}" for entry in made[:_MOST_MADE]), ""]
                if made
                else []
            ),
            "## Citation",
            "",
            "```bibtex",
            CITATION.format(version=slim_rl.__version__),
            "```",
            "",
            "## Licence",
            "",
            _licence(name, base),
            "",
        ]
    )
    return str(ModelCard(text))


def base_model(start: str) -> tuple[str, dict[str, Any]]:
    """Returns the base model's name, and its front matter: hub name and licence, if they are known."""
    path = Path(bundled.model(start))
    hub = hub_name(path) if path.exists() else start
    front = {"base_model": hub} if hub else {}  # which hubs link
    card = _front_matter(path / "README.md")
    return hub or path.name, front | {key: card[key] for key in _LICENCE_KEYS if card.get(key)}


def _front_matter(card: Path) -> dict[str, Any]:
    from huggingface_hub import ModelCard

    try:
        return dict(ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()) if card.is_file() else {}
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return {}


def _licence(name: str, front: Mapping[str, Any]) -> str:
    known = front.get("license_name") or front.get("license")
    if known:
        return f"That of `{name}`, which it was trained from: {known}."
    return f"That of `{name}`, which it was trained from; its card here names none, so look at the original's."


def _algorithm(config: Config) -> str:
    if config.train.backend != "verl":
        return "GRPO"
    return {"gae": "PPO"}.get(config.verl.adv_estimator, config.verl.adv_estimator.upper())


def _explored(train: TrainConfig) -> str:
    if not train.exploring_starts:
        return ""
    steps = train.steps if train.exploring_steps is None else train.exploring_steps
    return f"; a forced first question in {train.exploring_starts:.0%} of the dialogues, falling to none within {count(steps, 'step')}"


def _what_game(config: Config) -> str:
    return "game for one" if config.opposite == NOBODY else "game with a partner"


def _partner(config: Config) -> str:
    kind = config.opposite
    return f"openai, {config.partner.openai.model}" if kind == "openai" else kind


def _settings(game: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in game.items() if value is not None) or "the defaults"


def _results(
    base: str, results: Mapping[str, Sequence[Dialogue]], before: Mapping[str, Sequence[Dialogue]]
) -> list[str]:
    trained = _table(results)
    start = _table({f"{row} (the start)": dialogues for row, dialogues in before.items()})
    if not trained and not start:
        return []
    note = "Means over held-out games, played by sampling; intervals are clustered by game."
    of_start = ["### Before training", "", f"Of `{base}`, the start, and not of this model.", "", *start]
    return ["## Results", "", note, "", *trained, *(of_start if start else [])]


def _table(results: Mapping[str, Sequence[Dialogue]]) -> list[str]:
    rows = [_row(name, dialogues) for name, dialogues in results.items() if any(not d.failed for d in dialogues)]
    if not rows:
        return []
    heads = ["played", "games"]
    for measure in shown_in("card"):
        heads += [measure.heading, *(["95%"] if measure.role == "primary" else [])]
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows, ""]


def _row(name: str, dialogues: Sequence[Dialogue]) -> str:
    cells = []
    for measure, mean in _means(dialogues):
        cells.append(plain(mean.value, measure.share))
        if measure.role == "primary":
            cells.append(interval(mean.low, mean.high, measure.share))
    return f"| {name} | {sum(not d.failed for d in dialogues)} | {' | '.join(cells)} |"


def _means(dialogues: Sequence[Dialogue]) -> Iterator[tuple[Measure, Estimate]]:
    """Returns the card's measures over the dialogues that did not fail."""
    data = pd.DataFrame({"game_id": d.game_id, **measures(d)} for d in dialogues if not d.failed)
    absent = not_measured(dialogues[0].environment, map(annotated, dialogues)) if dialogues else []
    for measure in shown_in("card"):
        values = data[measure.name].astype(float)
        if measure.name in absent:
            values = values * float("nan")
        yield measure, clustered_mean(values, data["game_id"], measure.bounded, measure.signed)


def _evaluations(config: Config, results: Mapping[str, Sequence[Dialogue]]) -> list[Any]:
    """Returns the results as hubs index them: one `EvalResult` per measure, with its interval."""
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="text-generation",
            task_name=f"A dialogue {_what_game(config)}",
            dataset_type="slim_rl",
            dataset_name=f"Held-out games of {config.environment}",
            dataset_config=row,
            dataset_split="eval",
            metric_type=measure.name,
            metric_name=measure.title,
            metric_value=round(float(mean.value), 4),
            metric_args=_interval(mean),
        )
        for row, dialogues in results.items()
        for measure, mean in _means(dialogues)
        if known(mean.value)
    ]


def _interval(mean: Estimate) -> dict[str, Any]:
    if not known(mean.low) or not known(mean.high):
        return {"games": int(mean.clusters)}
    ends = {"low": round(float(mean.low), 4), "high": round(float(mean.high), 4)}
    return {**ends, "interval": "95%, over games", "games": int(mean.clusters)}


def _use(config: Config, results: Mapping[str, Sequence[Dialogue]]) -> list[str]:
    """Returns the example of a call, on the prompt of a held-out game if one was played."""
    prompt = next((d.prompt for dialogues in results.values() for d in dialogues if d.prompt), [_ANY])
    messages = "\n".join(["[", *(f"    {json.dumps(message, ensure_ascii=False)}," for message in prompt), "]"])
    policy, tokens = config.policy, config.limits.turn_tokens
    use = _USE.format(messages=messages, temperature=policy.temperature, top_p=policy.top_p, tokens=tokens)
    other = "the game's" if config.opposite == NOBODY else "its partner's"
    seat = f"It takes the policy's seat: what it is told at first is what the game tells a player, and each later message is {other}."
    return [seat, "", use]
