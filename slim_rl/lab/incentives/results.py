"""Rewards of scripted players under a config, and the judgement whether asking raises the reward and is needed."""

from __future__ import annotations

from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from slim_rl.formats import DASH, interval, known, plain
from slim_rl.statistics import Estimate

JUDGED = "random"  # curve that decides whether asking raises the reward
TOLERANCE = 0.03  # largest gain in reward without questions, over an honest solo plan, that is not a way around asking


@dataclass(frozen=True, slots=True)
class PlayerResult:
    """Result of one player; estimates are over games.

    Attributes:
        name, questions, curve, against: as in `ScriptedPlayer`.
        games: number of dialogues.
        failed: number of failed dialogues, which all other numbers leave out.
        reward: mean reward.
        agreed: share of games that ended in agreement.
        gain: reward minus that of the previous player on its curve; for a cheat, minus that of `against`; for others, minus that of
            the honest player without questions. None for the latter.
        learned: pairs (or other objects of questions) per game that it asked about and was answered; None if not counted.
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
    learned: float | None = None


@dataclass(frozen=True, slots=True)
class Incentives:
    """Rewards of all players under a config.

    Attributes:
        lines: one result per player; the first is the honest player without questions.
        partner: description of the partner.
    """

    lines: tuple[PlayerResult, ...]
    partner: str

    @property
    def curve(self) -> list[PlayerResult]:
        """Players of the deciding curve, by number of questions, from 0."""
        judged = JUDGED if any(line.curve == JUDGED and line.questions for line in self.lines) else self.lines[0].curve
        askers = [line for line in self.lines[1:] if line.curve == judged]
        return [self.lines[0], *sorted(askers, key=lambda line: line.questions)]

    @property
    def first_gain(self) -> Estimate | None:
        """Gain in reward of the first question; None if no game measures it."""
        gain = self.curve[1].gain if len(self.curve) > 1 else None
        return gain if gain is not None and gain.n else None

    @property
    def best_without(self) -> PlayerResult:
        """Best player without questions, among those with a significant gain (else luck in win-or-lose games would decide)."""
        better = [line for line in self.lines[1:] if not line.questions and line.gain is not None and line.gain.low > 0]
        return max((self.lines[0], *better), key=lambda line: line.reward.value)

    @property
    def rewards_asking(self) -> bool:
        """True if the first question raises the reward, and no player without questions gains more than `TOLERANCE`."""
        shortcut = self.best_without.reward.value - self.lines[0].reward.value
        return bool(self.first_gain is not None and self.first_gain.low > 0 and shortcut <= TOLERANCE)

    @property
    def sentence(self) -> str:
        """Judgement in one sentence."""
        if self.first_gain is None:
            failed = any(line.failed for line in self.lines)
            reason = "no game was played to its end" if failed else "none of the players asks a question"
            return f"The gain from asking is unknown: {reason}."
        solo, last = self.lines[0].reward.value, self.curve[-1]
        gain, shortcut = last.reward.value - solo, max(0.0, self.best_without.reward.value - solo)
        share = f"{100 * shortcut / gain:.0f}%" if gain > 0 else "more"
        if self.first_gain.low <= 0:
            judgement = "Asking does not raise the reward"
        else:
            judgement = "Asking raises the reward" + ("" if shortcut <= TOLERANCE else ", but is not needed")
        name = f" ({self.best_without.name}: {plain(self.best_without.reward.value)})" if shortcut > TOLERANCE else ""
        return (
            f"{judgement}: one {last.curve} question changes it by {plain(self.first_gain.value, signed=True)} (95% interval "
            f"{interval(self.first_gain.low, self.first_gain.high)}), {last.questions} by {plain(gain, signed=True)} from {plain(solo)}; "
            f"players without questions gain {share} of that{name}."
        )

    def table(self, title: str) -> Table:
        """Returns all results as a table of 80 columns."""
        failed = any(line.failed for line in self.lines)
        agreed = any(line.agreed for line in self.lines)  # no column in a game without proposals
        caption = "±: 95% intervals over games; learned: scores per game; gain: over the player before on the curve, or the one named"
        out = Table(title=title, caption=caption, box=None, pad_edge=False)
        out.add_column("player", no_wrap=True)
        for heading in ("reward", *(["agreed"] if agreed else []), "learned", *(["failed"] if failed else []), "gain"):
            out.add_column(heading, justify="right", no_wrap=True)
        for line in self.lines:
            out.add_row(
                escape(line.name),
                _with_error(line.reward),
                *([f"{line.agreed:.0%}" if known(line.agreed) else DASH] if agreed else []),
                DASH if line.learned is None else f"{line.learned:.1f}",
                *([str(line.failed)] if failed else []),
                _with_error(line.gain, signed=True) if line.gain else "",
            )
            if line.against:
                out.add_row(f"[dim]  over: {escape(line.against)}[/dim]")
        return out


def _with_error(estimate: Estimate, signed: bool = False) -> str:
    """Returns, for example, '+0.038 ± 0.016'."""
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:{'+' if signed else ''}.3f} ± {half:.3f}".replace("-", "−")
