"""Games as verl reads them: parquet with the columns of its RLHFDataset, one prompt group per row.

The game is JSON text in `extra_info` (`read_game_state`), since games of different shapes have no common Arrow type.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.games_file import GameRow, Split, games_files, load_rows
from slim_rl.environment import BaseEnvironment, make_environment
from slim_rl.errors import DataError
from slim_rl.files import replacing

DATA_SOURCE = "slim_rl"  # start of data_source in every row, by which verl distinguishes data sets


def write_data(config: Config, run_dir: Path) -> None:
    """Writes train.parquet and, if the config names held-out games, eval.parquet to the run's data folder."""
    env = make_environment(config)
    for split in games_files(config):
        rows = load_rows(config, split)
        if config.selfplay:  # a game is one row, since one session plays both of its seats
            rows = list({row.game_id: row for row in reversed(rows)}.values())[::-1]
        groups = (GameRow.of(env, row.game_id, row.game_state, row.seat) for row in rows)
        write_parquet(groups, run_dir / "data" / f"{split}.parquet", env, split)


def write_parquet(rows: Iterable[GameRow], path: str | Path, env: BaseEnvironment, split: Split = "train") -> None:
    """Writes the columns data_source, prompt, reward_model and extra_info."""
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


def read_game_state(extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the game of a parquet row. Raises DataError without one."""
    state = extra_info.get("game_state")
    if not state:
        raise DataError("A row of verl's data has no extra_info.game_state; make the file with slim-rl generate.")
    return dict(json.loads(state) if isinstance(state, str) else state)
