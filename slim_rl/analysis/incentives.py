"""What a config pays before anything is trained: scripted players over its own games, with its partner's rules.

    asking pays if one random question earns more than none, and if nobody who asks nothing earns more than one honest solo plan

A policy that starts without questions climbs only where its first question pays; and where plans tried one by one, a plan by
chance or a cheat earn what questions earn, it learns those. All players play the same games with the same draws, so differences
are paired by game. Where the partner is behind an endpoint, recorded, or the policy itself, the game's own scripted partner
stands in for it, which costs nothing. A game without scripted players is judged by its `frontier`: ideal askers on paper.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from slim_rl.analysis.formats import DASH, count, interval, known, plain
from slim_rl.analysis.statistics import clustered_mean
from slim_rl.analysis.statistics.estimate import Estimate
from slim_rl.config import PARTNERS, SELF, Config
from slim_rl.dialogue.dealing import deal
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.loop import Speaker
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import ScriptedPlayer, environment_class
from slim_rl.errors import ConfigError
from slim_rl.files import write_atomically

QUESTIONS = (1, 2, 4, 6, 8)
JUDGED = "random"  # the curve that says whether asking pays
FREE = 0.03  # reward: what may be had without a question above an honest solo plan, before it counts as a way around asking
GAMES = 500
GAMES_AT_A_START = (400, 2000)  # of all players; of those that show the first question, where the former leave it open

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Line:
    """What one player earned; estimates are over games.

    Attributes:
        name, questions, curve, against: as of `ScriptedPlayer`.
        games, failed: dialogues played, and those that failed, which are left out of all that follows.
        reward: its mean.
        agreed: share of games that ended in agreement.
        gain: reward less that of the player before it on its curve, or, of a cheat, of the one it is compared with; of any other
            less that of the honest player without questions.
        told: pairs, or whatever the game asks about, that it asked for and was told; None where that was not counted.
    """

    name: str
    questions: int
    curve: str
    against: str
    games: int
    failed: int
    reward: Estimate
    agreed: float
    gain: Estimate | None = None
    told: float | None = None


@dataclass(frozen=True, slots=True)
class Incentives:
    """What a config pays.

    Attributes:
        lines: one a player; the first is the honest player without questions.
        partner: who sat opposite, in words.
    """

    lines: tuple[Line, ...]
    partner: str

    @property
    def curve(self) -> list[Line]:
        """The players that are judged, by their number of questions, from 0 on."""
        judged = JUDGED if any(line.curve == JUDGED and line.questions for line in self.lines) else self.lines[0].curve
        found = [line for line in self.lines[1:] if line.curve == judged]
        return [self.lines[0], *sorted(found, key=lambda line: line.questions)]

    @property
    def first(self) -> Estimate | None:
        """What the first question adds to the reward."""
        return self.curve[1].gain if len(self.curve) > 1 else None

    @property
    def without(self) -> Line:
        """The player that earns most without a question."""
        return max((line for line in self.lines if not line.questions), key=lambda line: line.reward.value)

    @property
    def pays(self) -> bool:
        """Whether asking pays from the first question, and hardly anything can be had without."""
        around = self.without.reward.value - self.lines[0].reward.value
        return bool(self.first is not None and self.first.low > 0 and around <= FREE)

    @property
    def sentence(self) -> str:
        """Whether asking pays from the first question, and how much of what it brings can be had without it."""
        if self.first is None:
            return "What asking pays is not known: the game has neither scripted players nor a frontier."
        solo, most = self.lines[0].reward.value, self.curve[-1]
        brings, around = most.reward.value - solo, max(0.0, self.without.reward.value - solo)
        share = f"{100 * around / brings:.0f}%" if brings > 0 else "more"
        if self.first.low <= 0:
            does = "Asking does not pay from the first question"
        else:
            does = "Asking pays from the first question" if around <= FREE else "Asking pays, but is not needed"
        found = f" ({self.without.name}: {plain(self.without.reward.value)})" if around > FREE else ""
        return (
            f"{does}: one {most.curve} question changes the reward by {plain(self.first.value, signed=True)} (95% interval "
            f"{interval(self.first.low, self.first.high)}), {most.questions} by {plain(brings, signed=True)} from {plain(solo)}; "
            f"without a question {share} of that can be had{found}."
        )

    def table(self, title: str) -> Table:
        """All lines, for a terminal of 80 columns."""
        failed = any(line.failed for line in self.lines)
        caption = "±: 95% intervals over games; gain: over the player before on the same curve, or the one named"
        out = Table(title=title, caption=caption, box=None, pad_edge=False)
        out.add_column("player", no_wrap=True)
        for heading in ("reward", "agreed", "told", *(["failed"] if failed else []), "gain"):
            out.add_column(heading, justify="right", no_wrap=True)
        for line in self.lines:
            out.add_row(
                escape(line.name),
                _with_error(line.reward),
                f"{line.agreed:.0%}" if known(line.agreed) else DASH,
                DASH if line.told is None else f"{line.told:.1f}",
                *([str(line.failed)] if failed else []),
                _with_error(line.gain, signed=True) if line.gain else "",
            )
            if line.against:
                out.add_row(f"[dim]  over: {escape(line.against)}[/dim]")
        return out


def measure(
    config: Config,
    num_games: int = GAMES,
    questions: Sequence[int] = QUESTIONS,
    *,
    everyone: bool = True,
    only: str | None = None,
    live: bool = False,
) -> Incentives:
    """Plays every scripted player of the config's game on its first `num_games` training games.

    Args:
        everyone: cheats and further curves too, and what was told; else what `Incentives.sentence` needs.
        only: the players of this curve alone.
        live: play the config's own partner even where it is behind an endpoint.

    Raises:
        ConfigError: the game has one seat, or nothing to judge it by.
    """
    made = environment_class(config.environment)
    if made.seats != 2:
        raise ConfigError(f"{config.environment} is a game for one: there is nobody to ask.")
    config, partner = (config, config.partner.kind) if live else _with_stand_in(config)
    rows = list(deal(config, "train", num_games))
    found = made.scripted_players(config.game, questions)
    players = [one for one in found if one.curve == only or (only is None and (everyone or _is_judged(one)))]
    if not found:
        return Incentives(_on_paper(made, rows, max(questions)), "ideal askers, who are told and granted everything")
    worker = RolloutWorker(config, None)
    played: dict[str, list[Dialogue]] = {}
    for player in players:
        episodes = [worker.episode(row, "incentives") for row in rows]  # the same draws for every player
        worker.policy = Speaker(player.player)
        played[player.name] = [dialogue for (dialogue,) in asyncio.run(worker.play_all(episodes))]
    return Incentives(tuple(_lines(players, played, everyone)), partner)


def at_a_start(config: Config) -> tuple[str, bool] | None:
    """The sentence and whether the config pays, by few players on other games of its kind; kept for all runs of such games, partner and
    code.

    None for a game that cannot be judged so.
    """
    kept = _cache_file(config)
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(kept.read_text(encoding="utf-8"))
        return str(found["sentence"]), bool(found["pays"])
    try:
        measured = _measured_at_a_start(config)
    except ConfigError:
        return None
    if measured.first is None:
        return None
    result = {"sentence": measured.sentence, "pays": measured.pays}
    with suppress(OSError):  # what cannot be kept is played again
        write_atomically(kept, json.dumps(result))
    return measured.sentence, measured.pays


def _measured_at_a_start(config: Config) -> Incentives:
    few, many = GAMES_AT_A_START
    config = config.model_copy(update={"seed": 0, "data": config.data.model_copy(update={"seed": 0})})
    measured = measure(config, few, (1, max(QUESTIONS)), everyone=False)
    if measured.first is None or not measured.first.low <= 0 < measured.first.high:
        return measured
    again = measure(config, many, (1,), only=JUDGED)
    first = replace(measured.curve[1], gain=again.first)
    return replace(measured, lines=tuple(first if line.name == first.name else line for line in measured.lines))


def as_dict(incentives: Incentives) -> dict[str, Any]:
    """JSON-able; what is not known is None."""
    data = {"partner": incentives.partner, "sentence": incentives.sentence, "pays": incentives.pays}
    data["lines"] = [asdict(line) for line in incentives.lines]
    return _finite(data)


def _with_stand_in(config: Config) -> tuple[Config, str]:
    """The config with a scripted partner, and who that is."""
    kind = config.partner.kind
    if kind not in (*PARTNERS, SELF):
        return config, kind
    scripted = next((name for name in environment_class(config.environment).partners if name not in PARTNERS), None)
    if scripted is None:
        raise ConfigError(f"{config.environment} has no scripted partner to stand in for {kind}.")
    partner = config.partner.model_copy(update={"kind": scripted, "args": {}})
    return config.model_copy(update={"partner": partner}), f"{scripted}, standing in for {kind}"


def _with_error(estimate: Estimate, signed: bool = False) -> str:
    """'+0.038 ± 0.016'."""
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:{'+' if signed else ''}.3f} ± {half:.3f}".replace("-", "−")


def _is_judged(player: ScriptedPlayer) -> bool:
    return player.curve == JUDGED or (not player.questions and not player.against)


def _lines(players: Sequence[ScriptedPlayer], played: dict[str, list[Dialogue]], everyone: bool) -> Iterable[Line]:
    rewards = {name: _rewards(dialogues) for name, dialogues in played.items()}
    before: dict[str, str] = {}  # the player before, on each curve
    for player in players:
        dialogues = played[player.name]
        whole = [dialogue for dialogue in dialogues if not dialogue.failed]
        base = player.against or before.get(player.curve, players[0].name)
        if player.curve:
            before[player.curve] = player.name
        gain = None if player is players[0] else _mean(rewards[player.name] - rewards[base])
        yield Line(
            *(player.name, player.questions, player.curve, player.against),
            games=len(dialogues),
            failed=len(dialogues) - len(whole),
            reward=_mean(rewards[player.name]),
            agreed=float(np.mean([one.stop_reason is StopReason.AGREED for one in whole])) if whole else math.nan,
            gain=gain,
            told=_told(whole) if everyone else None,
        )


def _rewards(dialogues: Sequence[Dialogue]) -> Floats:
    return np.array([math.nan if dialogue.reward is None else dialogue.reward for dialogue in dialogues])


def _mean(values: Floats) -> Estimate:
    return clustered_mean(values, np.arange(len(values)))


def _told(dialogues: Sequence[Dialogue]) -> float:
    """What was asked for and told, a dialogue."""
    for dialogue in dialogues:
        annotate(dialogue)
    return (
        float(np.mean([float(measures(dialogue)["informative_pairs"]) for dialogue in dialogues])) if dialogues else 0.0
    )


def _on_paper(made: Any, rows: Sequence[GameRow], most: int) -> tuple[Line, ...]:
    """The lines of a game's frontier: its first strategy from 0 questions on, then the others. Without one, its references."""
    games = [(row.game_state, row.seat) for row in rows]
    curves = made.frontier(games, most)
    lines: list[Line] = []
    if not curves:
        for reference in made.references(games).values():
            rewards = np.asarray(reference["rewards"], dtype=float)
            lines.append(Line(reference["about"], 0, "", "", len(rewards), 0, _mean(rewards), math.nan))
    if not curves and not lines:
        raise ConfigError(
            f"{made.__name__} has nothing to judge a config by: give it a classmethod scripted_players or frontier."
        )
    for strategy, values in curves.items():
        table = np.asarray(values, dtype=float)
        for k in range(table.shape[1]):
            if k or not lines:
                name = f"{k} {strategy} question{'' if k == 1 else 's'}" if k else "no question"
                gain = _mean(table[:, k] - table[:, k - 1]) if k else None
                lines.append(Line(name, k, strategy, "", len(table), 0, _mean(table[:, k]), math.nan, gain))
    return tuple(lines)


def _cache_file(config: Config) -> Path:
    """Where the sentence of such a config is kept: named by all that it depends on, the code included."""
    partner = config.partner.model_dump(mode="json", exclude={"openai"})
    parts = [config.environment, _dumped(config.game), partner, config.data.seat, _code()]
    name = hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("SLIM_RL_CACHE") or Path.home() / ".cache" / "slim_rl")
    return folder / "incentives" / f"{name}.json"


def _dumped(game: Any) -> Any:
    return game.model_dump(mode="json") if hasattr(game, "model_dump") else dict(game)


@cache
def _code() -> str:
    """A digest of this package's own code."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not known(value) else value


def describe(config: Config, num_games: int) -> str:
    """The title of a config's table."""
    return f"What {config.name} pays, {count(num_games, 'game')} a player"
