"""The games as verl reads them: parquet rows for its RLHFDataset, one prompt group a row."""

from __future__ import annotations

from pathlib import Path

from slim_rl.config import Config
from slim_rl.dialogue.dealing import games_files, load_rows
from slim_rl.dialogue.factory import make_environment
from slim_rl.dialogue.parquet import write_parquet
from slim_rl.dialogue.rows import GameRow, Split
from slim_rl.errors import DataError


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
    """Returns the split's rows, each with the prompt of the run's environment.

    In self-play a game is one row, since one session plays both of its seats.
    """
    rows = load_rows(config, split)
    if config.selfplay:
        rows = list({row.game_id: row for row in reversed(rows)}.values())[::-1]
    env = make_environment(config)
    return [GameRow.of(env, row.game_id, row.game_state, row.seat) for row in rows]
