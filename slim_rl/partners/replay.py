"""Partner that repeats a recorded partner's turns. It never invents: where the record ends, the dialogue ends.

For debugging: `partner.replay` names a dialogue log. A dialogue is found by the prompt of the partner's seat and by the turns so far. The
prompt is computed again from the recorded game, so a log stays usable after its texts have changed.
(`partner.openai.cassette_mode: replay` repeats an endpoint's recorded answers instead.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slim_rl.config import PartnerConfig
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.environment import BaseEnvironment, View, reset_to
from slim_rl.errors import ConfigError, DataError

History = list[tuple[int, str]]  # (seat, text): what the partner's seat has seen


class ReplayPartner:
    """Partner with the turns of a log's partner.

    Raises DataError if the log cannot be read, or is of another game.

    Args:
        path: a dialogue log, or a folder of them.
        make_env: makes an environment of the run's game.
    """

    def __init__(self, path: str | Path, make_env: Callable[[], BaseEnvironment]) -> None:
        self.path = Path(path)
        # By seat and what it was dealt: what was said, with the seed.
        self._records: dict[tuple[int, str, str], list[tuple[int, History]]] = defaultdict(list)
        env = make_env()
        for dialogue in read_log(path):
            seat = 1 - dialogue.seat
            try:
                reset_to(env, dialogue.game_state)
                dealt = env.get_prompt_prefix(seat), env.get_state_description(seat)
            except Exception as error:
                raise DataError(
                    f"{path}: {dialogue.id} is not a dialogue of this run's game ({error!r}); give a log of the same game."
                ) from error
            replies = [
                (turn.seat, turn.text)
                for turn in dialogue.turns
                # the partner's refused words too, but no turn that only records why there were none
                if turn.error is None or (turn.seat == seat and turn.error != dialogue.failure)
            ]
            self._records[seat, *dealt].append((dialogue.seed, replies))
        env.close()

    @classmethod
    def from_config(cls, config: PartnerConfig, make_env: Callable[[], BaseEnvironment]) -> ReplayPartner:
        if config.replay is None:
            raise ConfigError(
                "partner.kind is 'replay' but partner.replay is not set: give the path of a dialogue log."
            )
        return cls(config.replay, make_env)

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "replay", "log": self.path.name}

    async def act(self, view: View) -> Turn:
        """Returns the recorded partner's next turn. Raises PartnerFailure without one."""
        records = self._records.get((view.seat, view.rules, view.state))
        if not records:
            raise PartnerFailure(f"{self.path} holds no dialogue of this game with its partner on seat {view.seat}.")
        so_far = [(utterance.seat, utterance.text) for utterance in view.history]
        records = sorted(records, key=lambda record: record[0] != view.seed)
        follows = [replies for _, replies in records if replies[: len(so_far)] == so_far]
        for said in follows:
            if len(said) > len(so_far) and said[len(so_far)][0] == view.seat:
                return Turn(said[len(so_far)][1])
        if follows:
            raise PartnerFailure(f"The recorded turns in {self.path} are used up after turn {len(so_far)}.")
        agreed = max(_common(said, so_far) for _, said in records)
        raise PartnerFailure(
            f"The conversation differs from the one in {self.path} at turn {agreed + 1}: "
            f"{so_far[agreed][1][:80]!r} was not said there."
        )


def _common(a: History, b: History) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
