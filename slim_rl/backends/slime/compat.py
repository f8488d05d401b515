"""The parts of slime that have moved between versions: v0.3.1 keeps under `slime.utils` what later versions keep under
`slime.observability`, and both report version 0.3.1. So a slime that is too old is recognised by the parts it does not have.
"""

from __future__ import annotations

import importlib
from typing import Any

from slime.utils.types import Sample

from slim_rl.errors import SlimError

_HOMES = ("slime.observability", "slime.utils")


def _moved(module: str, name: str) -> Any:
    for home in _HOMES:
        try:
            return getattr(importlib.import_module(f"{home}.{module}"), name)
        except ModuleNotFoundError as error:
            if error.name not in (home, f"{home}.{module}"):  # something else that it needs is not installed
                raise
    raise SlimError(
        f"This slime has {name} neither in {' nor in '.join(_HOMES)}; use v0.3.1 or later (docs/how-to/slime-launch.md)."
    )


if _missing := [name for name in ("append_response_tokens", "rollout_id") if not hasattr(Sample, name)]:
    raise SlimError(
        f"This slime is too old: its Sample has no {' and no '.join(_missing)}; use v0.3.1 or later (docs/how-to/slime-launch.md)."
    )

trace_span = _moved("trace_utils", "trace_span")
build_sglang_meta_trace_attrs = _moved("trace_utils", "build_sglang_meta_trace_attrs")
compute_rollout_step = _moved("metric_utils", "compute_rollout_step")
log_metrics = _moved("logging_utils", "log")
