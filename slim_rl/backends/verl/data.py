"""The games as verl reads them: parquet rows for its RLHFDataset, one prompt group a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.dealing import games_files, load_rows
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.rows import GameRow, Split
from slim_rl.environment import BaseEnvironment
from slim_rl.errors import DataError
from slim_rl.files import replacing

DATA_SOURCE = "slim_rl"  # what the data_source of every parquet row begins with: verl tells data sets apart by it


def write_data(config: Config, run_dir: Path) -> None:
    """Writes train.parquet and, if the config names held-out games, eval.parquet to the run's data folder.

    Raises:
        DataError: there are fewer games than one step plays.
    """
    rows = prompt_groups(config, "train")
    if len(rows) < config.train.games_per_step:
        raise DataError(
            f"{config.data.train} has {len(rows)} games, fewer than train.games_per_step = {config.train.games_per_step}; "
            "generate more or lower it."
        )
    env = make_environment(config)
    write_parquet(rows, run_dir / "data" / "train.parquet", env)
    if "eval" in games_files(config):
        write_parquet(prompt_groups(config, "eval"), run_dir / "data" / "eval.parquet", env, "eval")


def prompt_groups(config: Config, split: Split) -> list[GameRow]:
    """The split's rows, with the prompt that the run's environment gives. Under self-play a game is one row, since one session
    plays both of its seats.
    """
    rows = load_rows(config, split)
    if config.selfplay:
        rows = list({row.game_id: row for row in reversed(rows)}.values())[::-1]
    env = make_environment(config)
    return [GameRow.of(env, row.game_id, row.game_state, row.seat) for row in rows]


def write_parquet(rows: Iterable[GameRow], path: str | Path, env: BaseEnvironment, split: Split = "train") -> int:
    """Writes verl's columns (data_source, prompt, reward_model, extra_info); returns how many rows.

    The game is JSON text in `extra_info` (`read_game_state`), since a column of unlike games has no Arrow type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = f"{DATA_SOURCE}/{type(env).__name__}"
    table = [
        {
            "data_source": source,
            "prompt": row.prompt,
            "ability": "dialogue",
            "reward_model": {"style": "rule", "ground_truth": json.dumps(row.solution.get("ground_truth"))},
            "extra_info": {
                "index": index,
                "split": split,
                "game_id": row.game_id,
                "seat": row.seat,
                "game_state": json.dumps(row.game_state),
            },
        }
        for index, row in enumerate(rows)
    ]
    try:
        with replacing(Path(path)) as temporary:
            pq.write_table(pa.Table.from_pylist(table), temporary)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}; choose another output.") from error
    return len(table)


def read_game_state(extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """The game of a parquet row. Raises DataError if there is none."""
    state = extra_info.get("game_state")
    if not state:
        raise DataError("A row of verl's data has no extra_info.game_state; make the file with slim-rl generate.")
    return dict(json.loads(state) if isinstance(state, str) else state)
