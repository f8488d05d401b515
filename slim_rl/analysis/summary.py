"""Numbers of the report, computed from the frame of dialogues, as one JSON-able dict.

Invariants:
    Figures, tables and `summary.json` are made from this dict alone, so that they agree.
    Training dialogues make the curves; all other phases make the held-out tables (`held_out`).
    Failed dialogues have no reward: stop reasons, the partner's faults and the runs count them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from inspect import getdoc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slim_rl import statistics as st
from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.held_out import by_arm, cells_of, compare, held_out, of_mixture
from slim_rl.analysis.load import CASES, FAULTS, Log, read_dialogue
from slim_rl.analysis.verdict import verdicts
from slim_rl.config import MIXTURE
from slim_rl.dialogue.measures import MEASURES, OF_KIND, shown_in
from slim_rl.environment import MATCHING, game_of, load_object
from slim_rl.errors import ConfigError, DataError
from slim_rl.measured import measured

BINS = 25  # maximum number of points of a curve over training
MANY = 8  # dialogues with this many questions or more share a point
BOARDS = 1000  # maximum number of games per reference line

Games = Sequence[tuple[Any, int]]


def summarise(frame: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns all numbers from a frame of `load`, except those of its games' references (`references`).

    Args:
        kinds: title of each kind of question in the frame; None: the frame counts no kinds.
    """
    kinds = kinds or {}
    played = frame[~frame["failed"]]
    steps = frame[frame["phase"] == TRAIN].fillna({"step": 0})  # an adapter's trainer names none
    known = [m.name for m in shown_in("report") if m.name in frame]
    # questions are always shown, as "not measured" without any value
    names = [name for name in known if name == "questions" or frame[name].notna().any()]
    arms = [str(arm) for arm in frame["arm"].cat.categories]
    in_training = {arm: steps[(steps["arm"] == arm) & ~steps["failed"]] for arm in arms}
    unforced = played[~(played["questions_forced"] > 0)]
    of_arm = {arm: unforced[unforced["arm"] == arm] for arm in arms}
    by_condition = by_arm(held_out(frame), names, MIXTURE)
    return {
        "many": MANY,
        "counts": {
            "dialogues": len(frame),
            "played": len(played),
            "train": int((frame["phase"] == TRAIN).sum()),
            "games": int(frame["cluster"].nunique()),
        },
        "arms": arms,
        "measures": {name: MEASURES[name].about for name in names},
        "curves": {arm: _curves(rows, names) for arm, rows in in_training.items()},
        "ends": {arm: _ends(rows, names) for arm, rows in in_training.items()},
        "question_kinds": dict(kinds),
        "kinds": {arm: _kinds(rows, kinds) for arm, rows in in_training.items()},
        "stop_reasons": {arm: _stop_reasons(steps[steps["arm"] == arm]) for arm in arms},
        "runs": [_run(arm, run, rows) for (arm, run), rows in frame.groupby(["arm", "run"], observed=True)],
        "reward_by_questions": {arm: _by_questions(rows) for arm, rows in of_arm.items()},
        "correlations": list(_correlations(unforced)),
        "held_out": by_condition,
        "checkpoints": list(_checkpoints(played[played["phase"] != TRAIN], names)),
        "verdict": list(verdicts(by_condition)),
        "partner_faults": list(_partner_faults(frame)),
        "compared": compare(cells_of(frame)),
        "by_partner": list(_by_partner(steps)),
    }


def _mean(rows: pd.DataFrame, name: str) -> dict[str, Any]:
    """Returns the mean of a measure, with its interval over games."""
    return asdict(st.clustered_mean(rows[name], rows["cluster"].cat.codes, MEASURES[name].within))


def _run(arm: Any, run: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """Returns dialogues, games, failures, steps, phases, policies and partners of a run."""
    steps = rows.loc[rows["phase"] == TRAIN, "step"].dropna()
    return {
        "arm": arm,
        "run": run,
        "dialogues": len(rows),
        "games": int(rows["cluster"].nunique()),
        "failed": int(rows["failed"].sum()),
        "first_step": float(steps.min()) if len(steps) else None,
        "last_step": float(steps.max()) if len(steps) else None,
        "phases": {str(k): int(v) for k, v in rows["phase"].value_counts().items() if v},
        "policies": sorted(map(str, rows["policy"].unique())),
        "partners": sorted(map(str, rows["partner"].unique())),
    }


def partners_of(frame: pd.DataFrame) -> dict[str, str]:
    """Returns what each scripted partner of the frame's games does, by its docstring; without those that cannot be imported."""
    about = {}
    for environment, partner in frame[["environment", "partner"]].drop_duplicates().itertuples(index=False):
        if path := getattr(game_of(environment), "partners", {}).get(partner):
            with suppress(ConfigError):
                text = getdoc(load_object(path, f"{environment}.partners.{partner}", "my_game.MyPartner")) or ""
                about[str(partner)] = text.partition("\n")[0].strip()
    return about


# -- over training: the dialogues of one arm ---------------------------------------------------------------------------


def _bins(steps: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Returns each row's point on a curve, and the mean step of each point.

    There is one point per step, or BINS of equal width if there are more steps.
    """
    points = steps if steps.nunique() <= BINS else pd.cut(steps, BINS, labels=False)
    index = pd.factorize(points, sort=True)[0]
    return index, np.bincount(index, steps) / np.bincount(index)


def _curves(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Returns the steps, and per measure the means with intervals and those of single runs."""
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    points = range(len(steps))
    curves: dict[str, Any] = {"steps": steps.tolist(), "measures": {}}
    by_run = rows.assign(bin=index).groupby(["run", "bin"], observed=True)[list(names)].mean().unstack("bin")
    for name in names:
        means = st.clustered_means(rows[name], rows["cluster"].cat.codes, index, MEASURES[name].within)
        curves["measures"][name] = {
            **means.reindex(points)[["mean", "low", "high", "n", "clusters"]].to_dict("list"),
            "runs": {str(run): values.tolist() for run, values in by_run[name].reindex(columns=points).iterrows()},
        }
    return curves


def _ends(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Returns means over the first and the last tenth of the steps."""
    if rows["step"].nunique() < 2:
        return {}
    low, high = np.quantile([rows["step"].min(), rows["step"].max()], [0.1, 0.9])
    sides = {"first": rows[rows["step"] <= low], "last": rows[rows["step"] >= high]}
    return {name: {side: _mean(these, name) for side, these in sides.items()} for name in names}


def _by_partner(steps: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the training dialogues of each partner of a mixture: their number, and curves and ends of questions and reward."""
    names = ("questions", "reward")
    for (arm, partner), rows in steps[of_mixture(steps)].groupby(["arm", "partner"], observed=True):
        played = rows[~rows["failed"]]
        of_partner = {"curves": _curves(played, names), "ends": _ends(played, names)}
        yield {"arm": arm, "partner": partner, "dialogues": len(rows), **of_partner}


def _kinds(rows: pd.DataFrame, kinds: Iterable[str]) -> dict[str, Any]:
    """Returns the share of each kind of question at each point; a message of two kinds counts for both."""
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    sums = rows[[OF_KIND + kind for kind in kinds]].groupby(index).sum()
    total = sums.sum(axis=1)
    shares = sums.div(total.where(total > 0), axis=0)
    return {
        "steps": steps.tolist(),
        "questions_any": total.tolist(),
        "shares": {kind: shares[OF_KIND + kind].tolist() for kind in kinds},
    }


def _stop_reasons(rows: pd.DataFrame) -> dict[str, Any]:
    """Returns the share of each stop reason at each point, failures among them, the commonest first."""
    if rows.empty:
        return {}
    index, steps = _bins(rows["step"])
    shares = pd.crosstab(index, rows["stop_reason"].astype(str).to_numpy(), normalize="index")
    counts = rows["stop_reason"].astype(str).value_counts()
    return {
        "steps": steps.tolist(),
        "shares": {str(reason): shares[reason].tolist() for reason in counts.index},
        "counts": {str(reason): int(count) for reason, count in counts.items()},
    }


# -- questions and reward ----------------------------------------------------------------------------------------------


def _by_questions(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the mean reward by number of questions: 0, 1, 2, ..., and MANY or more."""
    rows = rows[rows["reward"].notna() & rows["questions"].notna()]
    count = rows["questions"].clip(upper=MANY).round().astype(int)
    means = st.clustered_means(rows["reward"], rows["cluster"].cat.codes, count, st.SHARE)
    return means.rename_axis("count").reset_index().astype(float).to_dict("records")  # type: ignore[return-value]


def _correlations(played: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the correlation of questions and reward among dialogues of one game, per arm, in training and on held-out games."""
    when = np.where(played["phase"] == TRAIN, "training", "held-out games")
    together = played.groupby(
        ["run", "step", "phase", "partner", "mode", "cluster"], observed=True, dropna=False
    ).ngroup()
    for (arm, phase), rows in played.groupby(["arm", when], observed=True):
        columns = (rows["questions"], rows["reward"], together[rows.index], rows["cluster"].astype(str))
        correlation = st.within_correlation(*columns)
        if np.isfinite(correlation.value):
            yield {"arm": arm, "when": phase, **asdict(correlation)}


# -- held-out games ----------------------------------------------------------------------------------------------------


def _checkpoints(played: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields means on held-out games per arm, partner and checkpoint, in the order of training."""
    keys = ["arm", "partner", "step", "phase"]
    for (arm, partner, step, phase), cell in played.groupby(keys, observed=True, dropna=False):
        runs, means = int(cell["run"].nunique()), {name: _mean(cell, name) for name in names}
        yield {"arm": arm, "partner": partner, "phase": phase, "step": step, "runs": runs, "measures": means}


def _partner_faults(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields faults, reward, and reward of dialogues without a fault, per arm, partner and checkpoint.

    A policy must not be credited with its partner's errors. Training has one row per arm and partner, other phases one per checkpoint.
    """
    names = [name.removeprefix(FAULTS) for name in frame.columns if name.startswith(FAULTS)]
    if not names:
        return
    keyed = frame.assign(step=frame["step"].where(frame["phase"] != TRAIN))
    for (arm, partner), part in keyed.groupby(["arm", "partner"], observed=True):
        points = list(part.groupby(["phase", "step"], observed=True, dropna=False))
        for (phase, step), rows in sorted(points, key=lambda item: (np.nan_to_num(item[0][1], nan=-1.0), item[0][0])):
            clean = rows[(rows[[FAULTS + name for name in names]] == 0).all(axis=1)]
            yield {
                "arm": arm,
                "partner": partner,
                "phase": phase,
                "step": step,
                "dialogues": len(rows),
                "clean": int(clean["reward"].notna().sum()),
                "reward": _mean(rows, "reward"),
                "clean_reward": _mean(clean, "reward"),
                "faults": {
                    name: {"faults": int(rows[FAULTS + name].sum()), "cases": int(rows[CASES + name].sum())}
                    for name in names
                },
            }


# -- references: rewards of plans made without a dialogue, of recorded people, and of simulated askers -------------------


def references(log: Log, seed: int, people: Path | None = None) -> dict[str, Any]:
    """Returns `references` and `frontier` of the log's commonest environment, in a sample of at most `BOARDS` of its games.

    Args:
        people: file of recorded human games, for one more line; None: no such line.

    Raises:
        DataError: `people` cannot be used.
    """
    environment = str(log.frame["environment"].mode()[0])
    rows = log.frame[log.frame["environment"] == environment].drop_duplicates("cluster")
    drawn = rows.sample(min(BOARDS, len(rows)), random_state=seed)
    games = [(read_dialogue(log, row).get("game_state") or {}, int(row.seat)) for row in drawn.itertuples()]
    curves = measured(game_of(environment)).frontier(games, MANY, seed)
    frontier = {name: _transposed([_mean_of_games(column) for column in curve[0].T]) for name, curve in curves.items()}
    return {"references": reference_lines(games, people, environment), "frontier": frontier}


def reference_lines(games: Games, people: Path | None = None, environment: str = MATCHING) -> dict[str, dict[str, Any]]:
    """Returns lines by name: {"reward": mean, interval and n, "about", "drawn"}; empty if the game has none.

    Args:
        people: file of recorded human games, for one more line; None: no such line.

    Raises:
        DataError: `people` cannot be used.
    """
    game = measured(game_of(environment))
    lines: dict[str, Any] = dict(game.references(games))
    if people is not None:
        recorded = game.people(people, games)
        if not recorded:
            raise DataError(f"{environment} has no recorded human games. Leave {people} out.")
        lines |= recorded
    return {
        name: {
            "reward": _mean_of_games(np.asarray(line["rewards"], dtype=float)),
            "about": line["about"],
            "drawn": line.get("drawn", True),
        }
        for name, line in lines.items()
    }


def _transposed(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = {"mean": "value", "low": "low", "high": "high"}
    return {name: [point[key] for point in points] for name, key in columns.items()} | {"boards": points[0]["n"]}


def _mean_of_games(rewards: np.ndarray) -> dict[str, Any]:
    mean = st.mean_of_games(rewards)
    return {name: getattr(mean, name) for name in ("value", "low", "high", "n")}
