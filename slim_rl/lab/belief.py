"""Per-turn credit by the policy's own belief (`train.reward: belief_credit`), which needs no values of questions.

The belief before a turn is the log-probability, in nats, that the policy's next turn states the truth (`MeasuredEnvironment.target`), given
the tokens of the dialogue so far. The tag of the action, such as `[propose]`, is given too: its probability says whether the policy would end
the dialogue now, and not what it knows. The engine that samples computes the belief, at temperature 1, and the log keeps it (`Turn.belief`).

The belief, in units of reward (`scale`), is the potential of the shaping in `credit`: a question is credited with the change of the belief
that its answer causes. A potential has a free constant per game. Here it makes the last turns of a group receive 0 on average, as with state
values; otherwise, with a low `decay`, ending a dialogue would be credited with the policy's uncertainty.

The credit is that of ΔBelief-RL (arXiv 2602.12342).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.interventions import Intervention
from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.lab.credit import TurnCredit, TurnRewards
from slim_rl.measured import measured


class BeliefCredit(TurnCredit):
    """Per-turn rewards by the change of the belief (`belief_credit`).

    Args:
        scale: reward per nat of belief.
        shaping: arguments of `TurnCredit`.
    """

    needs = ("target",)

    def __init__(self, config: Config, scale: float = 0.01, **shaping: Any) -> None:
        super().__init__(config, **shaping)
        if not isinstance(scale, int | float) or not (scale > 0 and isfinite(scale)):
            raise ConfigError(f"train.reward_args.scale={scale} is not a number above 0. Set, for example, 0.01.")
        self.scale = float(scale)

    def check(self) -> None:
        super().check()
        if self.config.selfplay:
            raise ConfigError(
                "train.reward=belief_credit reads the beliefs of one seat, but partner.kind=self has both. Set another partner.kind, or "
                "train.reward=turn_credit."
            )

    def description(self) -> str:
        return f"{self.of.description()}; per-turn credit (change of the policy's log-probability of the truth)"

    def player(self, policy: Any, chat: Chat | None, row: GameRow) -> Any:
        if chat is None or getattr(policy, "score", None) is None:
            raise ConfigError(
                f"train.reward=belief_credit needs an engine that scores tokens, and {type(policy).__name__} does not. Set train.reward=price."
            )
        return Believer(
            policy, chat, measured(environment_class(self.config.environment)).target(row.game_state, row.seat)
        )

    def values(self, dialogue: Dialogue) -> list[float]:
        """Returns the potential before each of the policy's turns, relative to the first; without a belief it does not change."""
        beliefs = [turn.belief for turn in dialogue.turns if turn.role == "policy"]
        first = current = next((belief for belief in beliefs if belief is not None), 0.0)
        out = []
        for belief in beliefs:
            current = current if belief is None else belief
            out.append(self.scale * (current - first))
        return out

    def turn_rewards(self, dialogues: Sequence[Dialogue], rewards: Sequence[float | None]) -> list[TurnRewards]:
        """Returns the rewards of the policy's turns, the last ones relative to their mean in the group."""
        out = super().turn_rewards(dialogues, rewards)
        last: dict[str, list[float]] = defaultdict(list)
        for dialogue in out:
            last[dialogue.group] += dialogue.turns[-1:]
        for dialogue in out:
            if dialogue.turns:
                dialogue.turns[-1] -= fmean(last[dialogue.group])
        return out


class Believer(Intervention):
    """Policy whose belief is computed before each of its turns.

    Args:
        target: the truth, as an action of the game.
    """

    def __init__(self, policy: Any, chat: Chat, target: str) -> None:
        super().__init__(policy, chat, "")
        self.target, tag = chat.said_ids(target), re.match(r"(\[\w+\])?", target)
        assert tag is not None
        self._tag_length = next(
            n for n in range(len(self.target)) if chat.decode(self.target[:n])[0].startswith(tag[0])
        )

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`. A truth that does not fit the turn is not scored."""
        belief = None
        if len(self.target) <= max_tokens:
            try:
                context = [*input_ids, *self.target[: self._tag_length]]
                scored = await self.score(context, Sampled(self.target[self._tag_length :], [], "stop"), key)
            except PolicyFailure as failure:
                if failure.reason is not StopReason.CONTEXT_LENGTH:
                    raise
            else:
                if scored.finish == "abort":
                    return scored
                belief = sum(scored.logprobs)
        sampled: Sampled = await self.policy.sample(input_ids, max_tokens, key)
        sampled.belief = belief
        return sampled
