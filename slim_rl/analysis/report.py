"""The report: its sections, built from the numbers of `summary`; its page; and its answer alone, for a terminal."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slim_rl import provenance
from slim_rl.analysis.arms import TRAIN
from slim_rl.analysis.dialogues import Game
from slim_rl.analysis.figures import PLOTS, colours
from slim_rl.analysis.held_out import comparable
from slim_rl.analysis.load import Log, frame_of
from slim_rl.analysis.page import Page, Section
from slim_rl.analysis.summary import reference_lines, summarise
from slim_rl.analysis.tables import TEXTS, Row, Table, value
from slim_rl.analysis.verdict import by_how_much, on_pair
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import DASH, NOT_MEASURED, count, known, p_value, plain, sentence, words

Results = Mapping[str, Any]
TITLE = "What did the policy learn to ask?"
MOST_SOURCES = 3  # commands listed on the page
MOST_PAIRS = 3  # pairs of policies in sentences; the table has all
CAPTIONS = TEXTS["tables"]
SECTIONS: list[Callable[[Log, float], Section]] = []


def register(make: Callable[[Log, float], Section]) -> Callable[[Log, float], Section]:
    """Adds a section to every report; `make` receives the log and the question cost (`analyze`'s `price`)."""
    SECTIONS.append(make)
    return make


def sections(results: Results, added: Sequence[Section] = ()) -> list[Section]:
    """Returns the report's sections; `added`: those of other packages."""
    others = [row for row in results["held_out"] if not _is_main(results, row["measure"])]
    slipped = any(part["faults"] for row in results["partner_faults"] for part in row["faults"].values())
    partners = [_partners(results)]

    def plots(*names: str) -> dict[str, Any]:
        return {name: PLOTS[name] for name in names}

    return [
        Section("", {}, _first_tables(results)),
        Section("", {}, [_training(results), *(partners if slipped else ())], plots("training", "training_by_partner")),
        Section("Questions and reward within games", {}, [_correlations(results)], plots("reward_by_questions")),
        Section("What is asked, and how dialogues end", {}, (), plots("question_kinds", "stop_reasons")),
        Section("Other measures", {}, [_others(results, others)], plots("measures"), folded=True),
        *added,
        *([] if slipped else [Section("Partner faults: none", {}, partners, folded=True)]),
        Section("Held-out games by checkpoint", {}, [checkpoints(results)], folded=True),
        Section("Runs", {}, [_runs(results)], folded=True),
    ]


def page(
    results: Results, parts: Sequence[Section], pictures: Mapping[str, str], games: Sequence[Game], seconds: int = 0
) -> Page:
    """Returns the page from the results, its sections and figures, and the dialogues to read."""
    counts = results["counts"]
    about, sentences = _answer(results)
    played = f"{count(counts['dialogues'], 'dialogue')} of {count(counts['games'], 'game')}"
    lead = [f"{played} in {count(len(results['runs']), 'run')} and {count(len(results['arms']), 'arm')}."]
    lead += [f"{sentence(name)}: {text[:1].lower()}{text[1:]}" for name, text in results["partners"].items() if text]
    return Page(
        title=TITLE,
        lead=" ".join(lead),
        about=about,
        sentences=sentences,
        sections=parts,
        pictures=pictures,
        warnings=results["warnings"],
        method=TEXTS["method"],
        origin=_origin(results),
        sample=_sample(results),
        games=games,
        colours=colours(results["arms"]),
        seconds=seconds,
    )


def answer(dialogues: Iterable[Dialogue], people: Path | None = None) -> tuple[list[Table], list[str]]:
    """Returns the report's first tables and sentences on held-out games in memory; the first arm is the others' baseline.

    Args:
        people: DialOp's file of human games, for a reference line; None: no such line.
    """
    frame = frame_of(played := list(dialogues))
    frame["arm"] = frame["arm"].cat.reorder_categories(list(dict.fromkeys(frame["arm"])))
    games = {(each.game_id, each.seat): (each.game_state, each.seat) for each in played}
    references = reference_lines(list(games.values()), people, played[0].environment)
    results = {**summarise(frame), "references": references}
    return [table for table in _first_tables(results) if table.rows], _answer(results)[1]


def _first_tables(results: Results) -> list[Table]:
    """Returns the tables that stand with the answer: held-out games, differences between policies, references."""
    main = [row for row in results["held_out"] if _is_main(results, row["measure"])]
    about = "before_and_after" if any(known(row["before"]) for row in main) else "evaluated"
    return [held_out(main, CAPTIONS[about], "partner"), _compared(results), _references(results)]


# -- sentences ---------------------------------------------------------------------------------------------------------


def _answer(results: Results) -> tuple[str, list[str]]:
    """Returns the subject and the sentences, from held-out games before and after training, else from training, else from an evaluation."""
    if results["verdict"]:
        main = results["verdict"][0]
        about = f"Arm {words(main['arm'])}, held-out games, partner {words(main['condition'])}:"
        return about if len(results["arms"]) > 1 else "", [*main["sentences"], *_faults(results, main)]
    if any(results["curves"].values()):
        return "", [
            "No held-out games were played both before and after training: see the figure and table on training below."
        ]
    if results["counts"]["train"]:
        return "", ["No training dialogue has a reward: see the stop reasons below."]
    played = f"{count(results['counts']['dialogues'], 'dialogue')} of {count(results['counts']['games'], 'game')}"
    pairs = map(on_pair, results["compared"][:MOST_PAIRS])
    return "", [f"Evaluation: {played}; these logs have no training.", *pairs]


def _faults(results: Results, main: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence on the partner's faults in held-out games, and the reward of dialogues without any."""
    played = (main["arm"], main["condition"])
    ends = [
        row for row in results["partner_faults"] if (row["arm"], row["partner"]) == played and row["phase"] != TRAIN
    ]
    if not any(part["faults"] for row in ends for part in row["faults"].values()):
        return
    faults = [
        f"{name}, {part['faults']:,} of {count(part['cases'], 'time')} ({plain(part['faults'] / part['cases'], share=True)})"
        for name, part in ends[-1]["faults"].items()
        if part["faults"]
    ]
    before, after = (
        f"{plain(row['clean_reward']['value'])} in {count(row['clean'], 'dialogue')}" for row in (ends[0], ends[-1])
    )
    yield f"Partner faults after training: {'; '.join(faults) or 'none'}. Reward of dialogues without any: from {before} to {after}."


def _origin(results: Results) -> str:
    sources = [provenance.sentence(entry) for entry in results["provenance"]]
    rest = len(sources) - MOST_SOURCES
    more = [f"{count(rest, 'more command')}: in `summary.json`."] if rest > 0 else []
    played = ["The dialogues:", *sources[:MOST_SOURCES], *more] if sources else []
    made = f"Made by slim_rl {results['version']} with `{results['command']}`. All numbers are in `summary.json`."
    return " ".join([made, *played])


def _sample(results: Results) -> str:
    shown, total = results["sampled"], results["counts"]["dialogues"]
    if shown == total:
        return f"All {total:,} dialogues."
    logs = " ".join(map(shlex.quote, sorted({str(Path(file["path"]).parent) for file in results["files"]})))
    return (
        f"{shown:,} of {total:,} dialogues, spread over arms, runs, steps and stop reasons. Figures and tables use all. To show the "
        f"others in a terminal: slim-rl show {logs}."
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def held_out(rows: Sequence[Mapping[str, Any]], caption: str, condition: str = "") -> Table:
    """Returns one row per arm and condition of `held_out.by_arm`'s rows: each measure before → after, and its change.

    Args:
        condition: heading of the column of conditions; "": no such column.
    """
    out: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        where = {condition: row["condition"]} if condition else {}
        about = {"arm": words(row["arm"]), **where, "seeds": f"{row['runs']:,}", "games": f"{row['games']:,}"}
        cells = out.setdefault((row["arm"], row["condition"]), about)
        cells.pop("intervals over", None)  # the last column
        cells |= {comparable()[row["measure"]].heading: moved(row), "intervals over": str(row["over"])}
    return Table(caption, list(out.values()))


def moved(row: Mapping[str, Any]) -> str:
    """Returns before → after with the change and its interval; without a before, the value with its interval."""
    share = comparable()[row["measure"]].share
    if not known(row["after"]):
        return NOT_MEASURED
    if not known(row["before"]):
        return value({"value": row["after"], "low": row["after_low"], "high": row["after_high"]}, share)
    change = by_how_much(row, share).replace(", 95% interval", ",")
    return f"{plain(row['before'], share)} → {plain(row['after'], share)} ({change})"


def _is_main(results: Results, measure: str) -> bool:
    """Returns True if the measure is shown without unfolding; forced questions, if there are any."""
    rows = [row for row in results["held_out"] if row["measure"] == "questions_forced"]
    forced = any(row["before"] > 0 or row["after"] > 0 for row in rows)
    main = {m.name for m in shown_in("first screen")} | ({"questions_forced"} if forced else set())
    return results["measures"][measure]["role"] == "primary" or measure in main


def _others(results: Results, rows: Sequence[Mapping[str, Any]]) -> Table:
    better = {"up": "more", "down": "less", "": DASH}
    cells = [
        {
            "arm": words(row["arm"]),
            "partner": row["condition"],
            "measure": results["measures"][row["measure"]]["title"],
            "better": better[results["measures"][row["measure"]]["better"]],
            "before → after": moved(row),
            "interval over": row["over"],
            "p of no change": p_value(row["p"]),
        }
        for row in rows
    ]
    return Table(CAPTIONS["others"], cells)


def _training(results: Results) -> Table:
    """Returns the means of the first and last tenth of training, per arm, and per partner of a mixture."""
    rows: list[Row] = []
    for arm, ends in results["ends"].items():
        runs = [run for run in results["runs"] if run["arm"] == arm]
        partners = dict.fromkeys(name for run in runs for name in run["partners"])
        trained = sum(run["phases"].get(TRAIN, 0) for run in runs)
        whole = {"partner": ", ".join(partners), "dialogues": trained, "ends": ends}
        for part in (whole, *(part for part in results["by_partner"] if part["arm"] == arm)):
            tenths = {
                f"{name}, {side} tenth": value(part["ends"][name][side]) if name in part["ends"] else DASH
                for name in ("questions", "reward")
                for side in ("first", "last")
            }
            about = {"arm": words(arm), "partner": part["partner"], "dialogues": f"{part['dialogues']:,}"}
            rows.append({**about, **tenths})
    return Table(CAPTIONS["training"], rows if any(results["ends"].values()) else [])


def _partners(results: Results) -> Table:
    """Returns the partner's faults and the reward, per phase and checkpoint; with a fault, kinds without any are left out."""
    rows = results["partner_faults"]

    def kinds(part: str) -> list[str]:
        return [name for name in (rows[0]["faults"] if rows else ()) if any(row["faults"][name][part] for row in rows)]

    possible = kinds("cases")
    happened = kinds("faults") or possible

    def fault(part: Mapping[str, int]) -> str:
        faults, cases = part["faults"], part["cases"]
        return f"{plain(faults / cases, share=True)} ({faults:,} of {cases:,})" if cases else DASH

    cells = [
        {
            "arm": words(row["arm"]),
            "partner": row["partner"],
            "played": _checkpoint(row),
            "reward": value(row["reward"]),
            "reward without faults": value(row["clean_reward"]),
            "dialogues without faults": f"{row['clean']:,}",
            **{name: fault(row["faults"][name]) for name in happened},
        }
        for row in rows
    ]
    caption = CAPTIONS["partners"]
    if never := [name for name in possible if name not in happened]:
        caption += f" Never, although possible: {', '.join(never)}."
    return Table(caption, cells if happened else [])


def _references(results: Results) -> Table:
    people = " and of people" if "human" in results["references"] else ""
    rows = [
        {
            "plan": words(name),
            "reward": value(line["reward"]),
            "games": f"{line['reward']['n']:,}",
            "description": line["about"],
        }
        for name, line in results["references"].items()
    ]
    return Table(f"Reference rewards of plans made without a dialogue{people}, with 95% intervals over games.", rows)


def _correlations(results: Results) -> Table:
    rows = [
        {
            "arm": words(row["arm"]),
            "played": row["when"],
            "correlation": value(row),
            "dialogues": f"{row['n']:,}",
            "games": f"{row['clusters']:,}",
        }
        for row in results["correlations"]
    ]
    return Table(CAPTIONS["correlations"], rows)


def checkpoints(results: Results) -> Table:
    """Returns the means at every checkpoint, for arms with at least three checkpoints."""
    times = Counter((row["arm"], row["partner"]) for row in results["checkpoints"])
    rows = [
        {
            "arm": words(row["arm"]),
            "partner": row["partner"],
            "checkpoint": _checkpoint(row),
            "runs": f"{row['runs']:,}",
            **_measured(results, row),
        }
        for row in results["checkpoints"]
        if times[row["arm"], row["partner"]] >= 3
    ]
    return Table(CAPTIONS["checkpoints"], rows)


def _compared(results: Results) -> Table:
    """Returns the differences between evaluated policies, per pair."""
    rows = [
        {
            "arm": words(row["second"]),
            "baseline": words(row["first"]),
            "games": f"{row['games']:,}",
            **_measured(results, row, signed=True),
            **{
                f"p, {measure.heading}": p_value(row["measures"][measure.name]["p"])
                for measure in shown_in("first screen")
                if measure.name in results["measures"] and measure.role == "primary"
            },
        }
        for row in results["compared"]
    ]
    return Table(CAPTIONS["compared"], rows)


def _measured(results: Results, row: Mapping[str, Any], signed: bool = False) -> dict[str, str]:
    """Returns a row's cells of the measures of the first screen."""
    return {
        measure.heading: value(row["measures"][measure.name], measure.share, signed)
        for measure in shown_in("first screen")
        if measure.name in results["measures"]
    }


def _checkpoint(cell: Mapping[str, Any]) -> str:
    return str(cell["phase"]) + (f", step {cell['step']:.0f}" if known(cell["step"]) else "")


def _runs(results: Results) -> Table:
    rows: list[Row] = [
        {
            "arm": words(run["arm"]),
            "run": str(run["run"]),
            **{name: f"{run[name]:,}" for name in ("dialogues", "games", "failed")},
            "steps": f"{run['first_step']:.0f} to {run['last_step']:.0f}" if known(run["first_step"]) else DASH,
            "phases": ", ".join(f"{phase} {number:,}" for phase, number in run["phases"].items()),
            "policy": ", ".join(run["policies"]),
            "partner": ", ".join(run["partners"]),
        }
        for run in results["runs"]
    ]
    return Table(CAPTIONS["runs"], rows)
