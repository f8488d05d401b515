"""Cost estimate of a run's partner: training and held-out games, for an untrained policy and for one that asks.

The partner answers an untrained policy about five times per game, and ten times or more once it has learned to ask. A provider may have
cached the beginning of a request, or nothing. Hence four prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slim_rl.config import Config, OpenAIConfig
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.factory import costs_money
from slim_rl.formats import count
from slim_rl.partners.spend import spent_usd

NOW, LATER = 5, 10  # the partner's turns a game

# An 8×8 game, in tokens, roughly: a token counts as a word, a number of three digits or a mark.
SYSTEM_TOKENS = 1200  # the same in every game; OpenAI caches a beginning of 1024 or more
TABLE_TOKENS = 350
TURN_TOKENS = 45  # what a turn of the other seat adds
REPLY_TOKENS = 25


def evaluation_dialogues(config: Config, eval_interval: int = 0) -> int:
    """Returns the number of held-out dialogues of the whole run, as each trainer plays them.

    Args:
        eval_interval: slime's steps between evaluations.
    """
    rows, steps = held_out_rows(config), config.train.steps
    if config.train.backend == "trl":
        between = (steps - 1) // config.train.eval_every if config.train.eval_every else 0
        return (config.train.eval_before + between + 1) * min(config.train.eval_games, rows)  # before, during and after
    if not rows:
        return 0
    if config.train.backend == "verl":
        # before the first step, every so many, and after the last one
        return rows * (1 + -(-steps // (config.train.eval_every or config.train.save_every)))
    return rows * (1 + steps // eval_interval) if eval_interval else 0  # before the first step, and every so many


def cost_report(config: Config, eval_interval: int = 0, folder: Path | None = None) -> str | None:
    """Returns sentences on what the run will cost; None if calls are free or the price is unknown.

    Args:
        eval_interval: see `evaluation_dialogues`.
        folder: the run's, if not the config's.
    """
    openai = config.partner.openai
    if not costs_money(config) or openai.cassette_mode == "replay":
        return None
    train, held_out = config.train.steps * config.train.dialogues, evaluation_dialogues(config, eval_interval)
    parts = [f"{train:,} dialogues in training and {held_out:,} in evaluation"]
    for turns, when in ((NOW, "as an untrained policy plays"), (LATER, "once it asks")):
        parts.append(f"at {turns} partner turns ({when}) {_price(openai, train + held_out, turns)}")
    budget = openai.budget_usd
    money = "no budget" if budget is None else f"a budget of ${budget:,.0f}"
    spent = spent_usd(folder or config.run_dir)
    return f"{'; '.join(parts)}; {money}" + (f", of which ${spent:,.2f} is spent" if spent else "")


def usd_expected(config: Config, eval_interval: int = 0) -> float | None:
    """Returns the US dollars of a run that learns to ask, with the provider's cache; None without a price."""
    dialogues = config.train.steps * config.train.dialogues + evaluation_dialogues(config, eval_interval)
    usd: float | None = estimate_cost(config.partner.openai, dialogues, LATER)["usd"]
    return usd


def _price(config: OpenAIConfig, dialogues: int, turns: int) -> str:
    estimate = estimate_cost(config, dialogues, turns)
    calls = f"{estimate['calls']:,} calls"
    if estimate["usd"] is None:
        return f"{calls}, {config.model} having no price"
    return f"{calls}, ${estimate['usd']:,.0f} (${estimate['usd_uncached']:,.0f} if nothing is cached)"


def estimate_cost(config: OpenAIConfig, num_dialogues: int, partner_turns: float = 5.0) -> dict[str, Any]:
    """Returns the estimated calls, tokens and US dollars of a run.

    Args:
        num_dialogues: number of games.
        partner_turns: the partner's turns per game (five: an untrained policy; ten: one that has learned to ask).

    Returns:
        ``model``, ``calls``, ``input_tokens``, ``cached_tokens``, ``output_tokens``, ``usd`` (None without a price) and
        ``usd_uncached`` (if the provider caches nothing). Cached is what an earlier request began with: the system prompt, and
        in all but the first call of a game the whole call before.
    """
    price = config.price
    calls = num_dialogues * partner_turns
    # Call k of a game (from 0) reads the system prompt, the table, k exchanges, and the words it answers.
    exchange = TURN_TOKENS + REPLY_TOKENS
    first = SYSTEM_TOKENS + TABLE_TOKENS + TURN_TOKENS
    later_calls = num_dialogues * max(0.0, partner_turns - 1)
    input_tokens = calls * first + later_calls * partner_turns / 2 * exchange
    cached_tokens = num_dialogues * SYSTEM_TOKENS + later_calls * (first + (partner_turns - 2) / 2 * exchange)
    counts = [round(value) for value in (input_tokens, cached_tokens, calls * REPLY_TOKENS)]
    return {
        "model": config.model,
        "calls": round(calls),
        "input_tokens": counts[0],
        "cached_tokens": counts[1],
        "output_tokens": counts[2],
        "usd": price.cost_usd(*counts) if price else None,
        "usd_uncached": price.cost_usd(counts[0], 0, counts[2]) if price else None,
    }


def held_out_rows(config: Config) -> int:
    """Rows of the held-out games' file, or as many as will be made."""
    file = games_files(config).get("eval")
    if file is None:
        return 0
    path, number = file
    if path.exists():
        with path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    return number


def in_words(estimate: Mapping[str, Any]) -> str:
    """Formats an estimate: '7,000 calls, about $8.89'."""
    price = "at an unknown price" if estimate["usd"] is None else f"about ${estimate['usd']:,.2f}"
    return f"{count(estimate['calls'], 'call')}, {price}"
