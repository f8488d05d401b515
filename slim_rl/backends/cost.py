"""Cost of a partner or policy behind an endpoint, estimated before anything is played."""

from collections.abc import Iterator

from slim_rl.config import Config, OpenAIConfig

TURNS = 10  # turns a game of one seat, once the policy has learned to ask; an untrained one causes about half as many

# An 8×8 game, in tokens, roughly: a token counts as a word, a number of three digits or a mark.
SYSTEM_TOKENS = 1200  # the same in every game; OpenAI caches a beginning of 1024 or more
TABLE_TOKENS = 350
TURN_TOKENS = 45  # what a turn of the other seat adds
REPLY_TOKENS = 25


def estimate_cost(config: OpenAIConfig, dialogues: int, turns: float = TURNS) -> str:
    """Returns a phrase on calls and price of n dialogues: '7,000 calls of gpt-4.1, about $8.89'.

    Args:
        turns: the endpoint's turns per game.
    """
    calls = dialogues * turns
    # Call k of a game (from 0) reads the system prompt, the table, k exchanges, and the words it answers. An earlier request has begun
    # with the system prompt, and in all but a game's first call with the whole call before: so much is cached. The rest is written to the
    # cache.
    exchange, first = TURN_TOKENS + REPLY_TOKENS, SYSTEM_TOKENS + TABLE_TOKENS + TURN_TOKENS
    later_calls = dialogues * max(0.0, turns - 1)
    read = calls * first + later_calls * turns / 2 * exchange
    cached = dialogues * SYSTEM_TOKENS + later_calls * (first + (turns - 2) / 2 * exchange)
    tokens_in, tokens_cached, tokens_out = (round(value) for value in (read, cached, calls * REPLY_TOKENS))
    cost = config.price and config.price.cost_usd(tokens_in, tokens_cached, tokens_out, tokens_in - tokens_cached)
    price = "at an unknown price" if cost is None else f"about ${cost:,.2f}"
    return f"{calls:,.0f} calls of {config.model}, {price}"


def paid_of(config: Config, dialogues: int) -> Iterator[tuple[str, int, OpenAIConfig]]:
    """Yields each partner that costs money: its name in a sentence, its number of n dialogues, and its endpoint."""
    for name, member in config.members.items():
        if member.opposite.paid:
            of_several = f"partner {name}" if config.partner.mixture else "partner"
            yield of_several, round(config.shares[name] * dialogues), member.partner.openai
