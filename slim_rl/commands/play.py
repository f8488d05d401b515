"""`slim-rl play`: a game in the terminal, played by a person against any partner.

The person types actions as the policy would write them. In a game with tags, a line without a tag is a message, and an empty line
ends a proposal of several lines. The person's board is shown again when it changes. Ctrl-C ends the command at once.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.text import Text

from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.commands.screen import printable, table_of
from slim_rl.config import Config, load_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, Board, View, make_environment, reset_to
from slim_rl.errors import ConfigError, SlimError
from slim_rl.processes import handled_by

QUIT = "quit"
QUIT_FAILURE = "you left the game"


def command(
    config: ConfigFile,
    game: Annotated[int, typer.Option(min=0, help="number of the held-out game, from 0")] = 0,
    overrides: Overrides = None,
) -> None:
    """Play a game against the config's partner."""
    play(load_config(config, overrides or ()), game=game)


class ShownWorker(RolloutWorker):
    """Worker that plays in the environment shown on the screen."""

    def __init__(self, config: Config, env: BaseEnvironment, person: "Person") -> None:
        super().__init__(config, None, person)
        self.env = env

    def environment(self) -> BaseEnvironment:
        return self.env


class Person(Partner):
    """Person at the keyboard, with the interface of a partner.

    Args:
        ask: reads one line after a prompt, as `input` does.
        env: environment; the seat's board is printed before a turn if it has changed.
    """

    identity: ClassVar[dict[str, Any]] = {"kind": "person"}

    def __init__(self, console: Console, ask: Callable[[str], str], env: BaseEnvironment) -> None:
        self.console, self.ask, self.env = console, ask, env
        self._last: Board | None = None

    async def act(self, view: View) -> Turn:
        board = self.env.board(view.seat)
        if view.history:
            last = view.history[-1]
            author = "" if last.error else "partner> " if view.observation.startswith(last.text) else "game> "
            self.console.print(Text(f"{author}{printable(view.observation)}", "red" if last.error else "cyan"))
        if board is not None and board != self._last:
            self.console.print(table_of(board))
            self._last = board
        # at once: asyncio's own handler would wait for the line that is read, and the loop has nothing else to do
        with handled_by(signal.default_int_handler):
            return Turn(self.read())

    def read(self) -> str:
        """Returns one action. Raises PartnerFailure when the person quits."""
        try:
            while not (text := self.ask("you> ").strip()):
                pass  # an empty line is not an action
            if text.lower() == QUIT:
                raise PartnerFailure(QUIT_FAILURE)
            if text.lower().startswith("[propose]"):
                while line := self.ask("   > ").strip():
                    text += f"\n{line}"
        except EOFError:
            raise PartnerFailure(QUIT_FAILURE) from None
        tags = self.env.tags
        return text if text.startswith("[") or not tags else f"[{tags[0]}] {text}"


def play(config: Config, *, game: int = 0, console: Console | None = None, ask: Any = input) -> float:
    """Plays one held-out game and returns the reward; 0 if it failed.

    Args:
        game: row of the held-out games (of the training games without those).

    Raises:
        ConfigError: the game does not exist, or self-play is asked for.
        SlimError: the partner stopped answering.
    """
    if config.selfplay:
        raise ConfigError("partner.kind=self needs a policy: choose a partner with --set partner.kind=...")
    console = console or Console()
    rows = load_rows(config, "eval") or load_rows(config, "train")
    if game >= len(rows):
        raise ConfigError(
            f"--game {game} does not exist. Choose one of the config's {len(rows)} games, 0 to {len(rows) - 1}."
        )
    row, env = rows[game], make_environment(config)
    reset_to(env, row.game_state)
    console.print(Text(printable(env.get_prompt_prefix(row.seat)), "dim"))
    if env.board(row.seat) is None:
        console.print(Text(printable(env.get_state_description(row.seat))))
    actions = ", ".join([f"a {env.tags[0]}", *(f"[{tag}]" for tag in env.tags[1:])]) if env.tags else "your action"
    errors = f" {env.max_errors} refused actions in a row end the game (game.max_errors)." if env.max_errors else ""
    plans = " An empty line ends a plan." if "propose" in env.tags else ""
    console.print(Text(f"Type {actions}; '{QUIT}' to leave.{plans}{errors}", "dim"))
    worker = ShownWorker(config.changed(limits={"turn_seconds": None}), env, Person(console, ask, env))
    (dialogue,) = asyncio.run(worker.play(worker.spec(row, "play")))
    if dialogue.failed and dialogue.failure != QUIT_FAILURE:
        raise SlimError(f"The game failed: {dialogue.failure or dialogue.stop_reason}")
    last = dialogue.turns[-1] if dialogue.turns and not dialogue.failed else None
    if last is not None:  # the person has not seen it yet
        said = f"partner> {last.text}" if last.role == "partner" else last.observation or last.error or ""
        console.print(Text(printable(said), "red" if last.error else "cyan"))
    console.print(Text(printable(f"ended: {dialogue.failure or dialogue.stop_reason}"), "dim"))
    if dialogue.reward is not None:
        console.print(f"reward: {dialogue.reward:.2f}", style="bold")
    if (truth := env.board(None)) is not None:
        console.print(table_of(truth))
    return dialogue.reward or 0.0
