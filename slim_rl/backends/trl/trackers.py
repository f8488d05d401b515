"""Names of a TRL step's metrics in trackers.

Measures of the dialogues are `dialogue/<name>`, as on every backend, those of held-out games `eval/dialogue/<name>`; the trainer's own
numbers have transformers' names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from functools import partial
from typing import Any

from transformers.integrations import integration_utils

from slim_rl.backends.step_line import played_step
from slim_rl.dialogue.tracked import TRACKED

HELD_OUT = f"eval/{TRACKED}"  # begins the name of each measure of held-out games

_prefixed = integration_utils.rewrite_logs


def name_measures(callbacks: Collection[Any], names: Callable[[], Collection[str]]) -> None:
    """Has the trackers among a trainer's callbacks call these of its numbers as every backend's trackers do."""
    integration_utils.rewrite_logs = _but_for_ours
    for callback in callbacks:
        if type(callback).__module__ == integration_utils.__name__:
            callback.on_log = partial(_renamed, callback.on_log, names)


def _renamed(
    log: Callable[..., Any],
    names: Callable[[], Collection[str]],
    args: Any,
    state: Any,
    *others_given: Any,
    logs: dict[str, Any] | None = None,
    **others: Any,
) -> Any:
    ours = names()
    if "reward" in (logs or {}):  # of a step's own dialogues
        state = copy(state)
        state.global_step = played_step(state.global_step)
    return log(
        args,
        state,
        *others_given,
        logs={TRACKED + name if name in ours else name: value for name, value in (logs or {}).items()},
        **others,
    )


def _but_for_ours(logs: dict[str, Any]) -> dict[str, Any]:
    """Wraps transformers' `rewrite_logs`, which would put train/ before every name."""
    ours = {name: value for name, value in logs.items() if name.startswith((TRACKED, HELD_OUT))}
    return {**_prefixed({name: value for name, value in logs.items() if name not in ours}), **ours}
