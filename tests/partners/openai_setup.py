"""A game in the middle of a dialogue, as the chat partner sees it, and a partner of the loopback server."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from slim_rl.config import OpenAIConfig, PartnerConfig, Price
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue, Turn, Usage
from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.openai_chat import OpenAIPartner
from slim_rl.partners.spend import Spend
from tests import made
from tests.dialogue.players import Says
from tests.fakes.openai_server import OpenAIServer, Step
from tests.paths import ROOT

# Seat 1 sees Ava on BLEU (60) and Daniel on Electra (30); seat 0 sees the other two.
GAME = GameState(
    table=((60, 80), (20, 30)),
    mask1=((False, True), (True, False)),
    mask2=((True, False), (False, True)),
    scale1=1.0,
    scale2=1.0,
    best_assignment_reward=100,
    roster=Roster.default(2),
)
QUESTION = "[message] What do you have for Ava Li on BLEU?"
GOOD_PLAN = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen"


def view_after(*said: str, seat: int = 1, seed: int = 7) -> View:
    """The view of `seat` once the texts of `said` were given to the game, seat 0 first."""
    env = MatchingEnv()
    env.reset(GAME)
    history = []
    for text in said:
        author = env.turn
        _, _, info = env.step(text)
        if author == seat or info["error"] is None:
            history.append(Utterance(author, text, info["error"]))
    private = env.get_private_view(seat)
    return View(seat, env.get_prompt_prefix(seat), env.get_state_description(seat), tuple(history), private, seed)


def asks(questions: int = 3) -> Says:
    """A player that asks `questions` times and then proposes."""
    return Says(lambda view: QUESTION if len(view.history) < 2 * questions else GOOD_PLAN)


async def play(player: Partner, partner: Partner | None, env: Any = None, state: Any = GAME, seed: int = 7) -> Dialogue:
    """Plays one game of the player, in seat 0, against the partner."""
    return await made.play(env or MatchingEnv(), player, partner, state, id=f"g#{seed}", seed=seed)


def partner_config(url: str | None, **settings: Any) -> PartnerConfig:
    """Impatient settings, for tests."""
    quick = {"request_seconds": 20.0, "turn_seconds": 40.0, "outage_wait_minutes": 0.1}
    return PartnerConfig(kind="openai", openai=OpenAIConfig(**{"base_url": url, **quick, **settings}))


def partner_of(server: Any, *, failures: int = 8, seconds: float = 0.1, **settings: Any) -> MatchingChatPartner:
    """A partner in haste. `failures`, `seconds`: when its endpoint counts as down (`Breaker`)."""
    partner = MatchingChatPartner(partner_config(server.url, **settings).openai)
    hasten(partner.endpoint, failures, seconds)
    return partner


def hasten(endpoint: Endpoint, failures: int = 8, seconds: float = 0.1) -> None:
    endpoint.first_wait, endpoint.longest_wait = 0.01, 0.02
    endpoint.breaker.failures, endpoint.breaker.seconds, endpoint.breaker.probe_seconds = failures, seconds, 0.02


def spend_elsewhere(folder: Path, usd: float) -> Spend:
    """What another process of the run in `folder` has spent."""
    spend = Spend()
    spend.keep(folder)
    spend.add(Usage(cost_usd=usd))
    return spend


def recorded(path: Path) -> list[dict[str, Any]]:
    """The rows of a cassette, first recorded first."""
    query = "SELECT key, seed, request, answer FROM answers ORDER BY recorded, rowid"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(query).fetchall()
    return [{"key": key, "seed": seed, "request": json.loads(r), "answer": json.loads(a)} for key, seed, r, a in rows]


def text_of(path: Path) -> str:
    """All that a file holds, a database's rows included."""
    if not path.read_bytes().startswith(b"SQLite"):
        return path.read_text(errors="replace")
    with closing(sqlite3.connect(path)) as db:
        return "\n".join(db.iterdump())


def spent_usd(folder: Path) -> float:
    """US dollars that the run in `folder` has spent."""
    return spend_elsewhere(folder, 0.0).spent_elsewhere()


ANSWER = "[message] Ava Li on BLEU: 60."
VIEW = view_after(QUESTION)
FLAT = {"prices": {"gpt-4.1": Price(input=2.0, cached=2.0, output=8.0)}}  # a cached call costs what any other does


@contextmanager
def started(program: str, *arguments: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of a program, one per list of arguments, which begin together: each prints "ready" and reads a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", program, *a], cwd=ROOT, text=True, **pipes) for a in arguments]
    try:
        assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * len(processes)
        for process in processes:
            print(file=process.stdin, flush=True)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def script(server: OpenAIServer, *steps: Step) -> None:
    server.script.extend(steps)  # type: ignore[attr-defined]


async def ask_many(partner: OpenAIPartner, number: int) -> list[Turn | BaseException]:
    views = [view_after(QUESTION, seed=seed) for seed in range(number)]
    return await asyncio.gather(*(partner.act(view) for view in views), return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
