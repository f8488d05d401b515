"""The games as verl reads them: parquet rows for its RLHFDataset, one prompt group a row.

The game travels as JSON text in `extra_info`, since a column of unlike games has no Arrow type. Files that
`slim-rl generate --format parquet` wrote, with the game as nested columns, are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.rows import Row, Split, load_rows, make_environment
from slim_rl.errors import DataError

DATA_SOURCE = "slim_rl"  # what the data_source of every row of ours begins with


def write_data(config: Config, run_dir: Path) -> None:
    """Writes train.parquet and, if the config names held-out games, eval.parquet to the run's data folder.

    Raises:
        DataError: there are fewer games than one step plays.
    """
    rows = verl_rows(config, "train")
    if len(rows) < config.train.games_per_step:
        raise DataError(
            f"{config.data.train} has {len(rows)} games, fewer than train.games_per_step = {config.train.games_per_step}; "
            "generate more or lower it."
        )
    write_parquet(rows, run_dir / "data" / "train.parquet")
    if config.data.eval is not None:
        write_parquet(verl_rows(config, "eval"), run_dir / "data" / "eval.parquet")


def verl_rows(config: Config, split: Split) -> list[dict[str, Any]]:
    """The split's games. Under self-play a game is one row, since one session plays both of its seats."""
    rows = load_rows(config, split)
    if config.partner.kind == "self":
        rows = list({row.game_id: row for row in reversed(rows)}.values())[::-1]
    env = make_environment(config)
    return [_row(row, index, split, env) for index, row in enumerate(rows)]


def game_state(extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """The game of a row, from verl's `extra_info`. Raises DataError if there is none."""
    state = extra_info.get("game_state")
    if not state:
        raise DataError("A row of verl's data has no extra_info.game_state; make the file with slim-rl.")
    return dict(json.loads(state) if isinstance(state, str) else state)


def _row(row: Row, index: int, split: Split, env: Any) -> dict[str, Any]:
    env.reset(row.game_state)
    return {
        "data_source": f"{DATA_SOURCE}/{type(env).__name__}",
        "prompt": env.prompt(row.seat),
        "ability": "game",
        "reward_model": {"style": "rule", "ground_truth": str(row.game_state.get("best_assignment_reward", ""))},
        "extra_info": {
            "index": index,
            "split": split,
            "game_id": row.game_id,
            "seat": row.seat,
            "game_state": json.dumps(row.game_state),
        },
    }


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes rows at once; a torn file is never seen."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.Table.from_pylist(list(rows)), temporary)
    temporary.replace(path)
