"""Plays held-out games with policies as they stand, and says how they did, with 95% intervals.

An evaluation is resumable: each dialogue is logged as it ends, and one that is in the log is not played again. Two policies
evaluated with the same seed play the same games with the same partner's seeds, so that they can be compared in pairs.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slim_rl.config import Config, load_config
from slim_rl.dialogue.batch import Job, play_jobs
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameSource
from slim_rl.errors import ConfigError, SlimError
from slim_rl.games.matching.instance import GameState
from slim_rl.policies.interventions import AskFirst, NeverAsk
from slim_rl.seeds import seed_of

PREFIX = "eval"  # of ids and seeds, whatever the run and its step: every evaluation of a seed is dealt the same


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy against one partner. `mode`: "free", "forbidden" (it may not ask) or "forced:K" (K questions are asked for it)."""

    checkpoint: str
    partner: str
    mode: str = "free"

    @property
    def name(self) -> str:
        path = Path(self.checkpoint)
        policy = path.parent.name if path.name == "model" else path.name
        return "_".join((policy, self.partner, self.mode.replace(":", "")))


def play_held_out(
    config: Config,
    games: GameSource,
    policy: Policy | Callable[[Job], Policy],
    partner: Partner | None,
    chat: Chat,
    *,
    log: Path,
    num_games: int,
    step: int,
    max_live: int | None = None,
) -> list[Dialogue]:
    """Plays the first `num_games` rows once each; returns all dialogues of `log`, those of an earlier try included.

    A dialogue that failed is logged, and played again by the next try.

    Raises:
        SlimError: the partner takes no more games (its endpoint is down, or its budget spent); what was played is logged.
    """
    jobs = [games.job(name, PREFIX, 0) for name in itertools.islice(games.rows, num_games)]
    done = {d.id: d for d in read_log(log) if not d.failed} if log.exists() else {}
    selfplay = config.partner.kind == "self"
    with DialogueLog(log, tokens=config.log.tokens) as writer:

        def keep(dialogue: Dialogue) -> None:
            dialogue.run, dialogue.arm, dialogue.step, dialogue.phase = config.name, config.arm_name, step, "eval"
            writer.append(dialogue)
            done[dialogue.id] = dialogue

        asyncio.run(
            play_jobs(
                [job for job in jobs if (f"{job.id}/0" if selfplay else job.id) not in done],
                games.environment,
                policy,
                partner,
                chat,
                config.limits,
                selfplay=selfplay,
                max_live=max_live,
                done=keep,
            )
        )
    if stopped := getattr(partner, "stopped", None):
        raise SlimError(f"{stopped} What was played is in {log}; the same command plays the rest.")
    return list(done.values())


def evaluate(config: Config, cells: Sequence[Cell], output: Path, num_games: int) -> dict[str, list[Dialogue]]:
    """Plays every cell on the same held-out games; logs go to `output`/<cell>.jsonl. Resumable.

    Raises:
        ConfigError: two cells would share a log, or a mode is none.
    """
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ConfigError("Two cells have the same name; give checkpoints in folders of different names.")
    return {cell.name: _play_cell(config, cell, output / f"{cell.name}.jsonl", num_games) for cell in cells}


def _play_cell(config: Config, cell: Cell, log: Path, num_games: int) -> list[Dialogue]:
    from slim_rl.partners import make_partner
    from slim_rl.policies.transformers import load_policy

    config = config.model_copy(
        update={
            "name": cell.name,
            "arm": cell.name,
            "partner": config.partner.model_copy(update={"kind": cell.partner}),
            "policy": config.policy.model_copy(update={"model": cell.checkpoint}),
        }
    )
    policy, chat = load_policy(config.policy)
    policy.reseed(seed_of(config.seed, PREFIX))
    games = GameSource(config, "eval")
    partner = None if cell.partner == "self" or games.environment().seats == 1 else make_partner(config.partner)
    return play_held_out(
        config,
        games,
        intervention(cell.mode, policy, chat),
        partner,
        chat,
        log=log,
        num_games=num_games,
        step=0,
    )


def intervention(mode: str, policy: Policy, chat: Chat) -> Policy | Callable[[Job], Policy]:
    """The policy of a mode. Raises ConfigError for a mode that is none."""
    name, _, number = mode.partition(":")
    if mode == "free":
        return policy
    if mode == "forbidden":
        return lambda job: NeverAsk(policy, chat)
    if name == "forced" and number.isdigit():
        return partial(_ask_first, policy, chat, int(number))
    raise ConfigError(f"The mode '{mode}' is none: use free, forbidden or forced:K, for example forced:2.")


def _ask_first(policy: Policy, chat: Chat, number: int, job: Job) -> Policy:
    """Asks about `number` random pairs that the policy cannot see and the partner can: the questions worth asking."""
    state = GameState.from_dict(job.game_state)
    own, other = state.mask(job.seat), state.mask(1 - job.seat)
    cells = itertools.product(range(state.n), range(state.n))
    informative = [(r, p) for r, p in cells if other[r][p] and not own[r][p]]
    random.Random(job.seed).shuffle(informative)
    roster = state.roster
    questions = [
        f"[message] What is {roster.reviewers[r]} on {roster.short_papers[p]}?" for r, p in informative[:number]
    ]
    return AskFirst(policy, chat, questions)


def evaluate_command(
    path: Path,
    overrides: Sequence[str],
    *,
    checkpoints: Sequence[str],
    partners: Sequence[str],
    modes: Sequence[str],
    num_games: int,
    output: Path,
    human: Path | None,
    dry_run: bool,
) -> None:
    """`slim-rl evaluate`: plays the cells and prints their table and the reference lines; the table is written too."""
    from rich.console import Console

    from slim_rl.analysis.references import humans, plans
    from slim_rl.analysis.terminal import cells_table

    config = load_config(path, overrides)
    cells = [
        Cell(checkpoint, partner, mode)
        for checkpoint in checkpoints
        for partner in partners or [config.partner.kind]
        for mode in modes
    ]
    console = Console()
    if dry_run:
        for cell in cells:
            console.print(f"{cell.name}: {num_games} games", markup=False)
        paid = sum(cell.partner == "openai" for cell in cells)
        if paid:
            from slim_rl.partners.spend import estimate_cost

            cost = estimate_cost(config.partner.openai, num_games * paid)
            price = "at an unknown price" if cost["usd"] is None else f"about ${cost['usd']:.2f}"
            console.print(f"{cost['model']}: {cost['calls']} calls, {price}", markup=False)
        return
    played = evaluate(config, cells, output, num_games)
    rows = list(GameSource(config, "eval").rows.values())[:num_games]
    games = [(GameState.from_dict(row.game_state), row.seat) for row in rows if "table" in row.game_state]
    lines = plans(games) | (humans(human, games) if human is not None else {})
    with (output / "table.txt").open("w", encoding="utf-8") as file:
        for target in (console, Console(file=file, width=200)):
            target.print(cells_table(played, f"{num_games} held-out games"))
            for line in lines.values():
                reward = line["reward"]
                target.print(
                    f"{line['about']}: reward {reward['value']:.3f} [{reward['low']:.3f}, {reward['high']:.3f}]",
                    markup=False,
                )
