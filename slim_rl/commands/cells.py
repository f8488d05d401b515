"""Cells: a policy against a partner on held-out games, as `slim-rl evaluate` and `slim-rl lab bench` play them.

Every cell has a log of its own and can be resumed. A policy is a checkpoint, a chat model, or one of the game's scripted policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl.commands.screen import working
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.held_out import SCOPE, play_held_out
from slim_rl.dialogue.interventions import INSTEAD, AskFirst, NeverAsk
from slim_rl.dialogue.loop import Player
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, did_you_mean
from slim_rl.measured import measured, says
from slim_rl.policies import weights_digest
from slim_rl.policies.engines import EngineChoice, ReadyPolicy, ready_policy
from slim_rl.policies.openai_chat import ChatPolicy
from slim_rl.runs import claim_log, evaluating
from slim_rl.seeds import seed_of

_WITHOUT_RESULT = frozenset(
    {
        StopReason.MAX_TURNS,
        StopReason.POLICY_ERRORS,
        StopReason.TURN_TOKENS,
        StopReason.DIALOGUE_TOKENS,
        StopReason.CONTEXT_LENGTH,
    }
)
CHAT, SCRIPTED = "openai:", "scripted:"  # prefixes of the names of chat models and of scripted policies


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of an evaluation: a policy against a partner.

    Attributes:
        policy: model folder, hub name, openai:MODEL, or scripted:NAME.
        partner: kind of the partner.
        mode: "free", "forbidden" (questions are replaced) or "forced:K" (the first K turns are forced questions).
        suite: name of the benchmark suite; "" outside the benchmark.
    """

    policy: str
    partner: str
    mode: str = "free"
    suite: str = ""

    @property
    def chat_model(self) -> str:
        """Name of the chat model; "" for other policies."""
        return self.policy.removeprefix(CHAT) if self.policy.startswith(CHAT) else ""

    @property
    def scripted(self) -> str:
        """Name of the scripted policy; "" for other policies."""
        return self.policy.removeprefix(SCRIPTED) if self.policy.startswith(SCRIPTED) else ""

    @property
    def policy_name(self) -> str:
        path = Path(self.chat_model.replace("/", "-") or self.scripted.replace(":", "") or self.policy)
        return path.parent.name if path.name == "model" else path.name

    @property
    def name(self) -> str:
        return "_".join((self.suite or self.policy_name, self.partner, self.mode.replace(":", "")))


def scripted_player(config: Config, name: str, option: str = "--policy") -> Any:
    """Returns the game's scripted policy `name`, at the config's question cost (the mean of several).

    Args:
        option: command-line option that named it, for the error.

    Raises:
        ConfigError: the game has no scripted policy of that name.
    """
    number = name.partition(":")[2]
    game = environment_class(config.environment)
    price = float(np.mean(make_training_reward(config).question_price))
    known = measured(game).baselines(config.game, price, *([int(number)] if number.isdecimal() else []))
    if name in known:
        return known[name]
    if not known:
        raise ConfigError(
            f"{option} {name} is not openai:MODEL, and {game.__name__} has no scripted policies. Name a chat model, or use --checkpoint."
        )
    raise ConfigError(
        f"{option} {name} is neither openai:MODEL nor a scripted policy of {game.__name__} ({', '.join(known)}). Name one of these, or "
        f"use --checkpoint for a model{did_you_mean(name, known) or '.'}"
    )


def play_cells(
    configs: Mapping[Cell, Config],
    games: Mapping[Cell, Sequence[GameRow]],
    output: Path,
    engine: EngineChoice,
    concurrency: int | None,
    num_trials: int = 1,
    elsewhere: str = "name another folder (--output ...)",
) -> dict[str, list[Dialogue]]:
    """Plays each cell under its config (`cell_config`) on its games; see `evaluate`.

    Args:
        elsewhere: advice of the error if the folder holds dialogues of another config.
    """
    cells = list(configs)
    results: dict[str, list[Dialogue]] = {}
    with evaluating(output):
        # load each model, and start each server, once; make a scripted policy per config
        for player in dict.fromkeys(map(_player, cells)):
            first, *_ = same_player = [cell for cell in cells if _player(cell) == player]
            with _ready(configs[first], first, engine, output / f"{first.name}.server.log") as ready:
                for cell in same_player:
                    config, log = configs[cell], output / f"{cell.name}.jsonl"
                    weights = None if cell.scripted or cell.chat_model else weights_digest(Path(cell.policy))
                    claim_log(log, config, _decides(config, cell), weights, elsewhere)
                    ready.reseed(seed_of(config.seed, SCOPE))
                    limits = config.limits.within(context_tokens=(ready.context,))
                    worker = RolloutWorker(config.changed(limits=limits), ready.chat, ready.policy)
                    worker.keep_spend(output)
                    results[cell.name] = play_held_out(
                        worker,
                        games[cell],
                        log,
                        step=None,
                        trials=num_trials,
                        policy=intervention(config, cell.mode, ready.policy, ready.chat),
                        max_live=concurrency or engine.at_once,
                    )
    return {cell.name: results[cell.name] for cell in cells}


def _decides(config: Config, cell: Cell) -> list[str]:
    """Returns the config keys that determine the cell's dialogues.

    The question cost is among them only if the policy reads it or plans by it.
    """
    policy = [] if cell.scripted else ["policy.openai"] if cell.chat_model else ["policy"]
    priced = cell.scripted or isinstance(make_training_reward(config).question_price, tuple)
    return ["environment", "seed", "game", "partner", "limits", *policy, *(["train.reward"] if priced else [])]


def _player(cell: Cell) -> tuple[str, str]:
    """Returns what is equal in cells that share a policy object."""
    return cell.policy, cell.suite if cell.scripted else ""


def cell_config(config: Config, cell: Cell) -> Config:
    """Returns the config of a cell. Raises ConfigError for a partner or mode that its policy cannot play."""
    if cell.partner == "self" and (cell.chat_model or cell.scripted):
        raise ConfigError(
            "partner.kind=self needs a policy that samples tokens, not a chat model or a scripted policy. Name another partner."
        )
    check_mode(config, cell.mode)
    policy: dict[str, Any] = {} if cell.scripted else {"model": cell.policy}
    if cell.chat_model:
        policy = {"openai": {"model": cell.chat_model}}
    changed = config.changed(name=cell.name, arm=cell.name, partner={"kind": cell.partner}, policy=policy)
    return parse_config(changed.model_dump(), source=f"the cell {cell.name}")


@contextmanager
def _ready(config: Config, cell: Cell, engine: EngineChoice, log: Path) -> Iterator[ReadyPolicy]:
    if cell.chat_model or cell.scripted:
        player = ChatPolicy(config.policy.openai) if cell.chat_model else scripted_player(config, cell.scripted)
        yield ReadyPolicy(player)
        return
    with ExitStack() as stack:
        with working(f"loading {cell.policy}"):
            ready = stack.enter_context(ready_policy(config, engine, log))
        yield ready


def parse_mode(mode: str) -> tuple[str, int]:
    """Returns a mode's name and its number of forced questions. Raises ConfigError for an unknown mode."""
    name, _, number = mode.partition(":")
    if (name in ("free", "forbidden") and not number) or (name == "forced" and number.isdecimal()):
        return name, int(number or 0)
    raise ConfigError(f"--mode {mode} is unknown. Use free, forbidden or forced:K, such as forced:2.")


_NEEDED = {"forbidden": "asks", "forced": "questions_worth_asking"}


def check_mode(config: Config, mode: str) -> None:
    """Raises ConfigError for an unknown mode, or if the config's game lacks the method that the mode needs."""
    name, _ = parse_mode(mode)
    needed = _NEEDED.get(name, "")
    game = environment_class(config.environment)
    if needed and not says(game, needed):
        raise ConfigError(
            f"--mode {mode} needs the classmethod {game.__name__}.{needed}, which is missing. Implement it (docs/reference/environment-api.md), or "
            "leave the mode out."
        )


def intervention(
    config: Config, mode: str, policy: Player, chat: Chat | None
) -> Callable[[DialogueSpec], Player] | None:
    """Returns a function that gives each dialogue the policy of a mode; None for free play."""
    name, number = parse_mode(mode)
    if name == "free":
        return None
    game = measured(environment_class(config.environment))

    def player(spec: DialogueSpec) -> Player:
        if name == "forbidden":
            asks = partial(game.asks, game_state=spec.row.game_state)
            instead = f"[{game.tags[0]}] {INSTEAD}" if game.tags else INSTEAD
            return NeverAsk(policy, chat, asks, instead)
        row = spec.row
        return AskFirst(policy, chat, game.questions_worth_asking(row.game_state, row.seat, number, spec.seed))

    return player


def notes(played: Mapping[str, Sequence[Dialogue]]) -> Iterator[str]:
    """Yields sentences on failed dialogues, games without a result, and the cost of the policies' API calls."""
    for name, dialogues in played.items():
        ended = Failures(dialogues)
        if ended.reasons:
            reasons = ", ".join(f"{reason} {count}" for reason, count in ended.reasons.most_common())
            yield f"{name}: {ended.reasons.total()} of {len(dialogues)} dialogues failed ({reasons}). Run the same command to replay them."
        unended = Counter(str(each.stop_reason) for each in dialogues if each.stop_reason in _WITHOUT_RESULT)
        if 2 * unended.total() >= len(dialogues) > 0:
            reasons = ", ".join(f"{reason} {count}" for reason, count in unended.most_common())
            yield (
                f"{name}: {unended.total()} of {len(dialogues)} games ended without a result ({reasons}). If the policy was trained with other "
                "rules or limits, set game.rules and limits.turn_tokens."
            )
        usages = [turn.usage for d in dialogues for turn in d.turns if turn.role == "policy" and turn.usage]
        if usages:
            calls, cost = (sum(usage.get(key) or 0 for usage in usages) for key in ("calls", "cost_usd"))
            yield f"{name}: {calls:,} policy calls" + (f", ${cost:.2f}" if cost else "")
