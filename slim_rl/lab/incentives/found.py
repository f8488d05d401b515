"""What scripted players earned by a config, and what it says: whether asking pays, and what can be earned without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from rich.markup import escape
from rich.table import Table

from slim_rl import jsonl
from slim_rl.formats import DASH, interval, known, plain

if TYPE_CHECKING:
    from slim_rl.statistics.estimate import Estimate

JUDGED = "random"  # the curve that says whether asking pays
FREE = 0.03  # reward: what may be earned without a question above an honest solo plan, before it counts as a way around asking


@dataclass(frozen=True, slots=True)
class PlayerIncentive:
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

    lines: tuple[PlayerIncentive, ...]
    partner: str

    @property
    def curve(self) -> list[PlayerIncentive]:
        """The players that are judged, by their number of questions, from 0 on."""
        judged = JUDGED if any(line.curve == JUDGED and line.questions for line in self.lines) else self.lines[0].curve
        found = [line for line in self.lines[1:] if line.curve == judged]
        return [self.lines[0], *sorted(found, key=lambda line: line.questions)]

    @property
    def first(self) -> Estimate | None:
        """What the first question adds to the reward; None where no game tells it."""
        gain = self.curve[1].gain if len(self.curve) > 1 else None
        return gain if gain is not None and gain.n else None

    @property
    def without(self) -> PlayerIncentive:
        """The player that earns most without a question, of those that are known to earn more than who they are compared with: where a game
        is won or lost, some earn more by luck.
        """
        more = [line for line in self.lines[1:] if not line.questions and line.gain is not None and line.gain.low > 0]
        return max((self.lines[0], *more), key=lambda line: line.reward.value)

    @property
    def pays(self) -> bool:
        """Whether asking pays from the first question, and hardly anything can be earned without."""
        around = self.without.reward.value - self.lines[0].reward.value
        return bool(self.first is not None and self.first.low > 0 and around <= FREE)

    @property
    def sentence(self) -> str:
        """Whether asking pays from the first question, and how much of what it brings can be earned without it."""
        if self.first is None:
            failed = any(line.failed for line in self.lines)
            why = "no game was played to its end" if failed else "none of the players asks a question"
            return f"What asking pays is not known: {why}."
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
            f"without a question {share} of that can be earned{found}."
        )

    def table(self, title: str) -> Table:
        """All lines, for a terminal of 80 columns."""
        failed = any(line.failed for line in self.lines)
        agreed = any(line.agreed for line in self.lines)  # not in a game without proposals
        caption = "±: 95% intervals over games; gain: over the player before on the same curve, or the one named"
        out = Table(title=title, caption=caption, box=None, pad_edge=False)
        out.add_column("player", no_wrap=True)
        for heading in ("reward", *(["agreed"] if agreed else []), "told", *(["failed"] if failed else []), "gain"):
            out.add_column(heading, justify="right", no_wrap=True)
        for line in self.lines:
            out.add_row(
                escape(line.name),
                _with_error(line.reward),
                *([f"{line.agreed:.0%}" if known(line.agreed) else DASH] if agreed else []),
                DASH if line.told is None else f"{line.told:.1f}",
                *([str(line.failed)] if failed else []),
                _with_error(line.gain, signed=True) if line.gain else "",
            )
            if line.against:
                out.add_row(f"[dim]  over: {escape(line.against)}[/dim]")
        return out


def as_dict(incentives: Incentives) -> dict[str, Any]:
    """JSON-able; what is not known is None."""
    said = {"partner": incentives.partner, "sentence": incentives.sentence, "pays": incentives.pays}
    lines = orjson.loads(jsonl.encode(incentives.lines))  # which writes null for NaN
    return {**said, "lines": lines}


def _with_error(estimate: Estimate, signed: bool = False) -> str:
    """'+0.038 ± 0.016'."""
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:{'+' if signed else ''}.3f} ± {half:.3f}".replace("-", "−")
