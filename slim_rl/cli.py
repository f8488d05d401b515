"""`slim-rl`: one command a task. Each command imports what it needs when it runs, so that `slim-rl --help` is instant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(
    help="Does a language model learn to ask questions when reinforcement learning makes asking worth it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[Path, typer.Argument(help="a YAML file, such as configs/matching_local.yaml")]
Overrides = Annotated[
    Optional[list[str]],  # noqa: UP045  typer reads this form
    typer.Option("--set", "-s", help="override a key: partner.kind=mute (repeatable)", metavar="KEY=VALUE"),
]


@app.command()
def generate(
    num_games: Annotated[Optional[int], typer.Option(help="games to make")] = None,  # noqa: UP045
    output: Annotated[Optional[Path], typer.Option(help="file to write: .jsonl, or .parquet for verl")] = None,  # noqa: UP045
    seed: Annotated[Optional[int], typer.Option()] = None,  # noqa: UP045
    n: Annotated[Optional[int], typer.Option(help="reviewers and papers")] = None,  # noqa: UP045
    workers: Annotated[int, typer.Option(help="processes")] = 1,
    seat: Annotated[Optional[str], typer.Option(help="the policy's seat: 0, 1 or both")] = None,  # noqa: UP045
    format: Annotated[Optional[str], typer.Option(help="jsonl or parquet; by default as the suffix says")] = None,  # noqa: UP045
    hardness: Annotated[Optional[float], typer.Option(help="pooled optimum over solo plans, at least")] = None,  # noqa: UP045
    scales: Annotated[Optional[bool], typer.Option(help="show each player differently scaled scores")] = None,  # noqa: UP045
    p_observed: Annotated[Optional[float], typer.Option(help="chance that a player sees a cell")] = None,  # noqa: UP045
    config: Annotated[Optional[Path], typer.Option(help="a config that says all this")] = None,  # noqa: UP045
) -> None:
    """Make games: a JSONL (or parquet) file, or the files a config names."""
    from slim_rl.commands.generate import generate as run

    made = run(
        num_games,
        output,
        seed=seed,
        n=n,
        workers=workers,
        seat=seat,
        format=format,
        hardness=hardness,
        scales=scales,
        p_observed=p_observed,
        config=config,
    )
    typer.echo(f"wrote {', '.join(map(str, made))}")


@app.command()
def train(
    config: Config,
    overrides: Overrides = None,
    backend: Annotated[Optional[str], typer.Option(help="trl, slime or verl; the config's by default")] = None,  # noqa: UP045
    fresh: Annotated[bool, typer.Option("--fresh", help="start anew instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be run, and stop")] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(help="verl: its own key=value; slime, after --: its own flags")
    ] = None,
) -> None:
    """Train a policy; resumes by itself from its last checkpoint."""
    from slim_rl.commands.train import train as run

    run(config, overrides or (), backend=backend, fresh=fresh, dry_run=dry_run, extra=extra or ())


@app.command()
def arms(
    config: Config,
    arm: Annotated[Optional[list[str]], typer.Option(help="arms to run (repeatable); all by default")] = None,  # noqa: UP045
    seeds: Annotated[str, typer.Option(help="comma-separated")] = "0,1,2",
    jobs: Annotated[int, typer.Option(help="runs side by side")] = 1,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
) -> None:
    """Run an experiment: every arm with every seed. Complete runs are skipped, interrupted ones resume."""
    from slim_rl.commands.arms import experiment

    experiment(config, arm or (), seeds, jobs, overrides or (), dry_run=dry_run, say=typer.echo)


@app.command()
def evaluate(
    config: Config,
    checkpoint: Annotated[list[str], typer.Option(help="a model folder or hub name (repeatable)")],
    partner: Annotated[list[str] | None, typer.Option(help="shy, forthcoming, mute, openai, ... (repeatable)")] = None,
    mode: Annotated[Optional[list[str]], typer.Option(help="free, forbidden or forced:K (repeatable)")] = None,  # noqa: UP045
    games: Annotated[int, typer.Option(help="held-out games a cell")] = 200,
    output: Annotated[Path, typer.Option(help="folder for the logs and the table")] = Path("logs/evaluation"),
    human: Annotated[Optional[Path], typer.Option(help="DialOp's optimization.jsonl, for a reference line")] = None,  # noqa: UP045
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list the cells and what they would cost, and stop")
    ] = False,
) -> None:
    """Play held-out games for every (checkpoint, partner, mode). Resumable; prints a table with intervals."""
    from slim_rl.commands.evaluate import evaluate_command

    evaluate_command(
        config,
        overrides or (),
        checkpoints=checkpoint,
        partners=partner or (),
        modes=mode or ("free",),
        num_games=games,
        output=output,
        human=human,
        dry_run=dry_run,
    )


@app.command()
def play(
    config: Config,
    game: Annotated[int, typer.Option(help="which of the config's games")] = 0,
    model: Annotated[Optional[str], typer.Option(help="watch this model play instead")] = None,  # noqa: UP045
    overrides: Overrides = None,
) -> None:
    """Play a game against the config's partner, or watch a model play it."""
    from slim_rl.commands.play import play as run
    from slim_rl.config import load_config

    run(load_config(config, overrides or ()), game=game, model=model)


@app.command()
def analyze(
    log_dir: Annotated[list[Path], typer.Option(help="folder of dialogue logs (repeatable)")],
    output_dir: Annotated[Path, typer.Option(help="folder for figures, summary.json and report.html")] = Path("plots"),
    seed: Annotated[int, typer.Option(help="of the bootstraps")] = 0,
    human: Annotated[Optional[Path], typer.Option(help="DialOp's optimization.jsonl, for a reference line")] = None,  # noqa: UP045
) -> None:
    """Figures, statistics and an HTML report with a dialogue viewer."""
    from slim_rl.analysis import analyze as run

    found = run(log_dir, output_dir, seed=seed, references=human, command=" ".join(["slim-rl", *sys.argv[1:]]))
    typer.echo(f"report: {found.report}")


@app.command()
def audit(log: Annotated[Path, typer.Argument(help="a dialogue log, or a folder of them")]) -> None:
    """Check a partner against the true tables: false values, leaks, refusals, unfair acceptances."""
    from slim_rl.games.matching.audit import audit_log

    typer.echo(audit_log(log).table())


@app.command()
def doctor(
    config: Annotated[Optional[Path], typer.Argument(help="the run's config")] = None,  # noqa: UP045
    backend: Annotated[Optional[str], typer.Option(help="trl, slime or verl; the config's by default")] = None,  # noqa: UP045
    overrides: Overrides = None,
) -> None:
    """Check a machine and a config before an expensive run."""
    from slim_rl.commands.doctor import exit_code, print_table, run_doctor

    checks = run_doctor(config, backend, overrides=overrides or ())
    print_table(checks)
    raise typer.Exit(exit_code(checks))


@app.command()
def convert(
    recorded: Annotated[Path, typer.Argument(help="recorded DialOp games (its optimization.jsonl)")],
    output: Annotated[Path, typer.Option(help="file to write")] = Path("data/recorded.jsonl"),
    form: Annotated[
        str, typer.Option(help="sft: chat messages with targets; games: a games file to evaluate on")
    ] = "sft",
    seat: Annotated[str, typer.Option(help="0, 1 or both")] = "both",
    tokenizer: Annotated[Optional[str], typer.Option(help="folder or hub name: write input_ids and labels too")] = None,  # noqa: UP045
    min_reward: Annotated[float, typer.Option(help="leave out games that ended below this")] = 0.0,
) -> None:
    """Turn recorded human games into chat data, for warm starts by supervision and for evaluation."""
    from slim_rl.games.matching.chat_data import convert_command

    rows = convert_command(recorded, output, form=form, seat=seat, tokenizer=tokenizer, min_reward=min_reward)
    typer.echo(f"wrote {rows} rows to {output}")


@app.command()
def warmstart(
    config: Config,
    output: Annotated[Path, typer.Option(help="folder to write")] = Path("data/warmstart"),
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option(help="processes that deal games")] = 1,
) -> None:
    """Make the tiny model that local runs start from."""
    from slim_rl.config import load_config
    from slim_rl.warmstart.train import warmstart as run

    typer.echo(f"wrote {run(load_config(config, overrides or ()), output, workers)}")


_LOCAL = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "tokenizers")  # of the extra [local]


def main() -> None:
    """Entry point. A `SlimError` is one sentence on stderr and exit code 1; anything else is a bug and shows its traceback."""
    from slim_rl.errors import SlimError

    if not {"", str(Path.cwd())} & set(sys.path):  # a game or partner of one's own may lie where the command is run
        sys.path.append(str(Path.cwd()))
    try:
        app()
    except SlimError as error:
        print(f"slim-rl: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        if error.name not in _LOCAL:
            raise
        print(
            f"slim-rl: this needs {error.name}, which is not installed: in slim_rl's checkout, pip install -e '.[local]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
