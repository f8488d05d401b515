"""Cells: a policy against a partner on held-out games, as `slim-rl evaluate` plays them.

Every cell has a log of its own and can be resumed. A policy is a checkpoint, a chat model, or one of the game's scripted policies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slim_rl.commands.screen import show_status
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.evaluation import SCOPE, play_held_out
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.measures import cannot_play
from slim_rl.dialogue.players import Player, against
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, did_you_mean
from slim_rl.lab.interventions import INSTEAD, AskFirst, NeverAsk
from slim_rl.measured import measured, says
from slim_rl.partners.openai_chat import ChatPolicy
from slim_rl.policies import weights_digest
from slim_rl.policies.engines import SERVED_AT_ONCE, ReadyPolicy, ready_policy
from slim_rl.runs import lock_folder, record_settings
from slim_rl.seeds import seed_of

CHAT, SCRIPTED = "openai:", "scripted:"  # prefixes of the names of chat models and of scripted policies


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of an evaluation: a policy against a partner.

    Attributes:
        policy: model folder, hub name, openai:MODEL, or scripted:NAME.
        partner: kind of the partner, a member of the config's mixture, or "mixture".
        mode: "free", "forbidden" (questions are replaced) or "forced:K" (the first K turns are forced questions).
    """

    policy: str
    partner: str
    mode: str = "free"

    @property
    def chat_model(self) -> str:
        """Name of the chat model; "" for other policies."""
        return self.policy.removeprefix(CHAT) if self.policy.startswith(CHAT) else ""

    @property
    def scripted(self) -> str:
        """Name of the scripted policy; "" for other policies."""
        return self.policy.removeprefix(SCRIPTED) if self.policy.startswith(SCRIPTED) else ""

    @property
    def name(self) -> str:
        path = Path(self.chat_model.replace("/", "-") or self.scripted.replace(":", "") or Path(self.policy).absolute())
        policy = path.parent.name if path.name == "model" else path.name
        return "_".join((policy, self.partner, self.mode.replace(":", "")))


def scripted_player(config: Config, name: str) -> Any:
    """Returns the game's scripted policy `name`, at the config's question cost (the mean of several).

    Raises:
        ConfigError: the game has no scripted policy of that name.
    """
    number = name.partition(":")[2]
    game = environment_class(config.environment)
    price = float(np.mean(make_training_reward(config).question_price))
    known = measured(game).baselines(config.game, price, *([int(number)] if number.isdecimal() else []))
    if name not in known:
        hint = did_you_mean(name, known) or "."
        raise ConfigError(
            f"--policy {name} is neither openai:MODEL nor a scripted policy of {game.__name__} ({', '.join(known) or 'it has none'}). Name "
            f"one of these, or use --checkpoint for a model{hint}"
        )
    return known[name]


def evaluate(
    config: Config,
    cells: Sequence[Cell],
    output: Path,
    num_games: int,
    engine: str = "transformers",
    server: str | None = None,
    concurrency: int | None = None,
    num_trials: int = 1,
) -> dict[str, list[Dialogue]]:
    """Plays every cell on the same held-out games, and logs to `output`/<cell>.jsonl. Logged games are not played again.

    Args:
        engine: engine that samples checkpoints (`engines.check_engine`).
        server: address of its server; None for transformers.
        concurrency: maximum number of dialogues at once; None: all of them, or 1000 with a server.
        num_trials: dialogues per game.

    Returns:
        The dialogues of each cell, by its name.

    Raises:
        ConfigError: two cells have the same name, a mode or partner is unknown, or there are no held-out games.
        SlimError: another process evaluates into this folder, a model or server cannot be used, or an endpoint stopped
            answering. Dialogues played so far are logged.
    """
    if len({cell.name for cell in cells}) < len(cells):
        raise ConfigError("Two cells have the same name. Put checkpoints in folders of different names.")
    configs = {cell: cell_config(config, cell) for cell in cells}  # raises before any cell is played
    games = load_rows(config, "eval")[:num_games]
    if not games:
        raise ConfigError("The config has no held-out games. Set data.eval and data.num_eval.")
    elsewhere = "name another folder (--output ...)"
    results: dict[str, list[Dialogue]] = {cell.name: [] for cell in cells}
    with lock_folder(output, f"The evaluation in {output}", elsewhere):
        for policy in dict.fromkeys(cell.policy for cell in cells):  # each model is loaded once
            first, *_ = own = [cell for cell in cells if cell.policy == policy]
            ready = _ready(configs[first], first, engine, server)
            weights = None if first.scripted or first.chat_model else weights_digest(Path(policy))
            for cell in own:
                settings, log = configs[cell], output / f"{cell.name}.jsonl"
                record_settings(log, settings, _decides(settings, cell), weights, elsewhere)
                ready.policy.reseed(seed_of(config.seed, SCOPE))
                limits = settings.limits.within(context_tokens=ready.context)
                worker = RolloutWorker(settings.changed(limits=limits), ready.chat, ready.policy)
                worker.keep_spend(output)
                results[cell.name] = play_held_out(
                    worker,
                    games,
                    log,
                    step=None,
                    title=f"held-out games, {cell.name}",
                    trials=num_trials,
                    policy=intervention(settings, cell.mode, ready.policy, ready.chat),
                    max_live=concurrency or (SERVED_AT_ONCE if server else None),
                )
    return results


def _decides(config: Config, cell: Cell) -> list[str]:
    """Returns the config keys that determine the cell's dialogues.

    The question cost is among them only if the policy reads it or plans by it.
    """
    policy = [] if cell.scripted else ["policy.openai"] if cell.chat_model else ["policy"]
    priced = cell.scripted or isinstance(make_training_reward(config).question_price, tuple)
    return ["environment", "seed", "game", "partner", "limits", *policy, *(["train.reward"] if priced else [])]


def cell_config(config: Config, cell: Cell) -> Config:
    """Returns the config of a cell. Raises ConfigError for a partner or mode that its policy cannot play."""
    parse_mode(config, cell.mode)
    if member := (config.partner.mixture or {}).get(cell.partner):
        alone = config.changed(partner={"mixture": {cell.partner: member}})
    else:
        alone = config if cell.partner == config.opposite.name else against(config, cell.partner)
    if alone.selfplay and (cell.chat_model or cell.scripted or cell.mode.startswith("forced")):
        raise ConfigError(
            "partner.kind=self needs a policy that samples tokens, not a chat model or a scripted policy, and no forced questions. Name "
            "another partner."
        )
    policy: dict[str, Any] = {} if cell.scripted else {"model": cell.policy}
    if cell.chat_model:
        policy = {"openai": {"model": cell.chat_model}}
    changed = alone.changed(name=cell.name, arm=cell.name, policy=policy)
    return parse_config(changed.model_dump(), source=f"the cell {cell.name}")


def _ready(config: Config, cell: Cell, engine: str, server: str | None) -> ReadyPolicy:
    if cell.chat_model or cell.scripted:
        return ReadyPolicy(
            ChatPolicy(config.policy.openai) if cell.chat_model else scripted_player(config, cell.scripted)
        )
    with show_status(f"loading {cell.policy}"):
        return ready_policy(config, engine, server)


_NEEDED = {"forbidden": "asks", "forced": "questions_worth_asking"}  # mode -> method of the instrument


def parse_mode(config: Config, mode: str) -> tuple[str, int]:
    """Returns a mode's name and its number of forced questions.

    Raises ConfigError for an unknown mode, or if the config's game lacks the method that the mode needs.
    """
    name, _, number = mode.partition(":")
    if not (number.isdecimal() if name == "forced" else mode in ("free", "forbidden")):
        raise ConfigError(f"--mode {mode} is unknown. Use free, forbidden or forced:K, such as forced:2.")
    game = environment_class(config.environment)
    if name in _NEEDED and not says(game, _NEEDED[name]):
        raise ConfigError(
            f"--mode {mode} needs the instrument's method {game.__name__}.{_NEEDED[name]}, which is missing. Implement it "
            "(docs/reference/environment-api.md), or leave the mode out."
        )
    return name, int(number or 0)


def intervention(
    config: Config, mode: str, policy: Player, chat: Chat | None
) -> Callable[[DialogueSpec], Player] | None:
    """Returns a function that gives each dialogue the policy of a mode; None for free play."""
    name, number = parse_mode(config, mode)
    game = environment_class(config.environment)
    instrument = measured(game)

    def player(spec: DialogueSpec) -> Player:
        row = spec.row
        if name == "forced":
            questions = instrument.questions_worth_asking(row.game_state, row.seat, number, spec.seed)
            return AskFirst(policy, chat, questions)
        asks = partial(instrument.asks, game_state=row.game_state)
        return NeverAsk(policy, chat, asks, f"[{game.tags[0]}] {INSTEAD}" if game.tags else INSTEAD)

    return None if name == "free" else player


def notes(played: Mapping[str, Sequence[Dialogue]]) -> Iterator[str]:
    """Yields sentences on failed dialogues, games without a result, and the cost of the policies' API calls."""
    for name, dialogues in played.items():
        ended = Failures(dialogues)
        if ended.reasons:
            reasons = ", ".join(f"{reason} {count}" for reason, count in ended.reasons.most_common())
            yield f"{name}: {ended.reasons.total()} of {len(dialogues)} dialogues failed ({reasons}). Run the same command to replay them."
        if sentence := cannot_play(dialogues):
            yield f"{name}: {sentence}"
        usages = [turn.usage for d in dialogues for turn in d.turns if turn.role == "policy" and turn.usage]
        if usages:
            calls, cost = sum(usage.calls for usage in usages), sum(usage.cost_usd for usage in usages)
            yield f"{name}: {calls:,} policy calls" + (f", ${cost:.2f}" if cost else "")
