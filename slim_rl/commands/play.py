"""`slim-rl play`: a game in the terminal; a person, or a model that is watched, against any partner.

The person types actions as the policy would write them. In a game whose actions begin with a tag, a line without one is a
message, and a proposal may go over several lines, ended by an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slim_rl.config import Config
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.loop import Speaker
from slim_rl.dialogue.partner import PartnerFailure, Reply
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, Board, View

QUIT = "quit"


class Person:
    """Somebody at the keyboard, on the protocol of a partner. `tags`: the game's (`BaseEnvironment.tags`)."""

    identity: ClassVar[dict[str, Any]] = {"kind": "person"}

    def __init__(self, console: Console, ask: Callable[[str], str] = input, tags: Sequence[str] = ()) -> None:
        self.console, self.ask, self.tags = console, ask, tags

    async def reply(self, view: View) -> Reply:
        if view.history:
            last = view.history[-1]
            author = "partner> " if last.seat != view.seat else "" if last.error else "game> "
            self.console.print(Text(f"{author}{printable(view.observation)}", "red" if last.error else "cyan"))
        return Reply(await asyncio.to_thread(self.read))

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
        return text if text.startswith("[") or not self.tags else f"[{self.tags[0]}] {text}"


def play(
    config: Config, *, game: int = 0, model: str | None = None, console: Console | None = None, ask: Any = input
) -> float:
    """Plays row `game` of the held-out games (of the training games if there are none) and returns the reward.

    With `model`, that model plays and the person watches.
    """
    console = console or Console()
    rows = load_rows(config, "eval" if config.data.eval else "train")
    row = rows[game % len(rows)]
    env = _dealt(config, row)
    _show_board(console, env.board(row.seat))
    dialogue = _play_person(config, env, row, console, ask) if model is None else _watch(config, row, model, console)
    reward = dialogue.reward or 0.0
    console.print(f"ended: {dialogue.stop_reason}", style="dim")
    console.print(f"reward: {reward:.2f}", style="bold")
    _show_board(console, env.board(None))
    return reward


def _play_person(
    config: Config, env: BaseEnvironment, row: GameRow, console: Console, ask: Callable[[str], str]
) -> Dialogue:
    console.print(Text(env.get_prompt_prefix(row.seat), "dim"))
    if env.board(row.seat) is None:
        console.print(Text(env.get_state_description(row.seat)))
    actions = ", ".join([f"a {env.tags[0]}", *(f"[{tag}]" for tag in env.tags[1:])]) if env.tags else "your action"
    console.print(Text(f"Type {actions}; '{QUIT}' to leave.", "dim"))
    worker = RolloutWorker(config, None, Speaker(Person(console, ask, env.tags)))
    (dialogue,) = asyncio.run(worker.play(worker.episode(row, "play")))
    if (
        dialogue.turns and dialogue.turns[-1].role == "partner"
    ):  # what ended the game, which the person has not seen yet
        console.print(Text(f"partner> {printable(dialogue.turns[-1].text)}", "cyan"))
    return dialogue


def _watch(config: Config, row: GameRow, model: str, console: Console) -> Dialogue:
    from slim_rl.policies.transformers import load_policy

    policy, chat = load_policy(config.policy.model_copy(update={"model": model}))
    policy.reseed(config.seed)
    worker = RolloutWorker(config, chat, policy)
    dialogue = asyncio.run(worker.play(worker.episode(row, "play")))[row.seat if worker.selfplay else 0]
    for turn in dialogue.turns:
        console.print(Text(f"{turn.role}> {printable(turn.text)}", "green" if turn.role == "policy" else "cyan"))
        if turn.error:
            console.print(Text(f"  refused: {turn.error}", "red"))
    return dialogue


def _dealt(config: Config, row: GameRow) -> BaseEnvironment:
    env = RolloutWorker(config, None).environment()
    env.reset(row.game_state)
    return env


def printable(text: str) -> str:
    """The text without the control characters that a terminal would obey."""
    return "".join(c for c in text if c == "\n" or c == "\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))


def _show_board(console: Console, board: Board | None) -> None:
    if board is not None:
        console.print(table_of(board))


def table_of(board: Board) -> Table:
    """A board for the terminal; marked cells stand in bold, with a star."""
    table = Table(title=Text(board.title))
    table.add_column("")
    for column in board.columns:
        table.add_column(Text(column), justify="right")
    for row, name in enumerate(board.rows):
        cells = [
            Text(f"*{cell}", "bold green") if (row, column) in board.marked else Text(cell)
            for column, cell in enumerate(board.cells[row])
        ]
        table.add_row(Text(name), *cells)
    return table
