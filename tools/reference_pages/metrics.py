"""Page of metrics, from the table of measures."""

from collections.abc import Sequence

from reference_pages.tables import GENERATED, table
from slim_rl.dialogue.measures import MEASURES, Measure

_HEAD = f"""\
# Metrics

A measure is one number per dialogue. It has the same name in trackers (W&B, TensorBoard, …), in the log's data frame, in `slim-rl show --where`, in contrasts and in the report.
[The glossary](glossary.md) defines the terms.

| prefix | of |
|---|---|
| `dialogue/` (slime), `train/dialogue/` (TRL) | the dialogues of a training step; under verl they are in the dialogue log |
| `eval/NAME/dialogue/` (slime), `eval/dialogue/` (TRL), `val-aux/slim_rl/NAME/mean@1` (verl) | held-out games |

The mean is over the dialogues that did not fail. A share of nothing is left out.

{GENERATED}

## Measures in trackers
"""
_OTHERS = """\
## Other measures

They are in the log's data frame, the report and contrasts, not in trackers.
"""
_BATCH_HEAD = """\
## Metrics of a step

These include failed dialogues, except `turns_…` and `partner/NAME/…`.
"""
# Metrics of `batch_metrics` and the backends that are no measure of one dialogue. `{}` stands for a stop reason.
BATCH = {
    "failed": "share of dialogues that failed",
    "stop/{}": "share of dialogues per [stop reason](log-format.md#stop-reasons)",
    "failure/{}": "number of failed dialogues per reason",
    "turns_p50": "median number of turns, both seats",
    "turns_p95": "95th percentile of the same",
    "partner_seconds_p50": "median seconds of a partner's turn",
    "partner_seconds_p95": "95th percentile of the same",
    "partner/NAME/reward": "of a mixture: mean reward of the dialogues with a partner",
    "partner/NAME/questions": "of a mixture: their information-seeking questions",
    "cost_usd": "partner behind an endpoint: dollars spent in the step",
    "partner_retries": "partner behind an endpoint: repeated requests per call",
    "partner_cached": "partner behind an endpoint: share of its input tokens that the provider had cached",
    "train_reward": "mean reward that the trainer received, if `train.reward` differs from the game's reward",
}


def page() -> str:
    """Returns the page: measures that trackers show, other measures, metrics of a step."""
    tracked = [measure for measure in MEASURES.values() if "tracker" in measure.shown]
    others = [measure for measure in MEASURES.values() if "tracker" not in measure.shown]
    kinds = [("`questions/KIND`", "questions of one kind per game, such as `questions/pair`", "questions", "")]
    parts = [_HEAD, *_measures(tracked, kinds), _OTHERS, *_measures(others), _BATCH_HEAD]
    parts += table(("metric", "meaning"), [(f"`{name.format('REASON')}`", text) for name, text in BATCH.items()])
    return "\n".join(parts).rstrip() + "\n"


def _measures(measures: Sequence[Measure], more: Sequence[tuple[str, str, str, str]] = ()) -> list[str]:
    better = {"up": "higher", "down": "lower", "": ""}
    rows = [(f"`{each.name}`", each.title, each.unit, better[each.better]) for each in measures]
    return table(("measure", "meaning", "unit", "better"), [*rows, *more])
