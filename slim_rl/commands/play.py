"""A game in the terminal: a person, or a model that is watched, against any partner.

The person types actions as the policy would write them; a line without a tag is a message, and a proposal may go over several
lines, ended by an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table

from slim_rl.config import Config, Limits
from slim_rl.dialogue.loop import converse
from slim_rl.dialogue.partner import Partner, PartnerFailure, Reply
from slim_rl.dialogue.rows import Row, load_rows, make_environment
from slim_rl.environment import BaseEnvironment, View
from slim_rl.games.matching.instance import GameState
from slim_rl.partners import make_partner

QUIT = "quit"


class Person:
    """Somebody at the keyboard, on the protocol of a partner."""

    identity: ClassVar[dict[str, Any]] = {"kind": "person"}

    def __init__(self, console: Console, ask: Callable[[str], str] = input) -> None:
        self.console, self.ask = console, ask

    async def reply(self, view: View) -> Reply:
        if view.history and view.history[-1].error:
            self.console.print(f"[red]{view.history[-1].error}[/red]")
        text = await asyncio.to_thread(self.read)
        return Reply(text)

    def read(self) -> str:
        """One action. Raises PartnerFailure when the person leaves."""
        try:
            text = self.ask("you> ").strip()
            if text.lower() == QUIT:
                raise PartnerFailure("you left the game")
            if text.lower().startswith("[propose]"):
                while line := self.ask("   > ").strip():
                    text += f"\n{line}"
        except EOFError:
            raise PartnerFailure("you left the game") from None
        return text if text.startswith("[") else f"[message] {text}"


def play(
    config: Config, *, game: int = 0, model: str | None = None, console: Console | None = None, ask: Any = input
) -> float:
    """Plays row `game` of the held-out games (of the training games if there are none) and returns the reward.

    With `model`, that model plays and the person watches.
    """
    console = console or Console()
    rows = load_rows(config, "eval" if config.environment or config.data.eval else "train")
    row = rows[game % len(rows)]
    env = make_environment(config)
    partner = make_partner(config.partner)
    if model is None:
        return asyncio.run(_play_person(config, env, row, partner, console, ask))
    return asyncio.run(_watch(config, env, row, partner, model, console))


class _Aloud:
    """A partner whose words are printed as they come."""

    def __init__(self, partner: Partner, console: Console) -> None:
        self.partner, self.console = partner, console
        self.identity = partner.identity

    async def reply(self, view: View) -> Reply:
        reply = await self.partner.reply(view)
        self.console.print(f"partner> {reply.text}", style="cyan", markup=False)
        return reply


async def _play_person(
    config: Config, env: BaseEnvironment, row: Row, partner: Partner, console: Console, ask: Callable[[str], str]
) -> float:
    env.reset(row.game_state)
    console.print(env.get_prompt_prefix(row.seat), style="dim", markup=False)
    _show_table(console, row, row.seat)
    console.print(f"Type a message, [propose], [accept] or [reject]; '{QUIT}' to leave.", style="dim", markup=False)
    person, opposite = Person(console, ask), _Aloud(partner, console)
    players: list[Partner] = [person, opposite] if row.seat == 0 else [opposite, person]
    _, stop_reason, _ = await converse(env, players, Limits(), game_state=row.game_state, seed=config.seed)
    console.print(f"ended: {stop_reason}", style="dim")
    return _show_result(console, env, row)


async def _watch(
    config: Config, env: BaseEnvironment, row: Row, partner: Partner, model: str, console: Console
) -> float:
    from slim_rl.dialogue.loop import play_dialogue
    from slim_rl.policies.transformers import load_policy

    policy, chat = load_policy(config.policy.model_copy(update={"model": model}))
    policy.reseed(config.seed)
    _show_table(console, row, row.seat)
    dialogue = await play_dialogue(
        env,
        policy,
        partner,
        chat,
        config.limits,
        game_state=row.game_state,
        id="play",
        game_id=row.game_id,
        seat=row.seat,
    )
    for turn in dialogue.turns:
        style = "green" if turn.role == "policy" else "cyan"
        console.print(f"{turn.role}> {turn.text}", style=style, markup=False)
        if turn.error:
            console.print(f"  refused: {turn.error}", style="red", markup=False)
    console.print(f"ended: {dialogue.stop_reason}", style="dim")
    return _show_result(console, env, row)


def _show_table(console: Console, row: Row, seat: int) -> None:
    if "table" in row.game_state:
        state = GameState.from_dict(row.game_state)
        console.print(
            score_table("your scores", state.roster.reviewers, state.roster.short_papers, state.displayed(seat))
        )


def _show_result(console: Console, env: BaseEnvironment, row: Row) -> float:
    reward = env.get_normalized_reward()
    console.print(f"reward: {reward:.2f}", style="bold")
    if "table" in row.game_state:
        state = GameState.from_dict(row.game_state)
        best = state.best()
        console.print(
            score_table(
                "true scores (best plan marked)", state.roster.reviewers, state.roster.short_papers, state.table, best
            )
        )
    return reward


def score_table(
    title: str,
    reviewers: Sequence[str],
    papers: Sequence[str],
    values: Sequence[Sequence[int | None]],
    plan: Sequence[int] | None = None,
) -> Table:
    """A table of scores for the terminal; the cells of `plan` (plan[reviewer] = paper) are marked."""
    table = Table(title=title)
    table.add_column("")
    for paper in papers:
        table.add_column(paper, justify="right")
    for r, name in enumerate(reviewers):
        cells = ["?" if value is None else str(value) for value in values[r]]
        if plan is not None:
            cells[plan[r]] = f"[bold green]{cells[plan[r]]}[/]"
        table.add_row(name, *cells)
    return table
