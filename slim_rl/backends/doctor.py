"""Checks of a machine and a config before an expensive run, with one question to its partner.

A check yields lines of the table. An exception becomes a failed line, and the other checks still run.
"""

import asyncio
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from slim_rl import backends
from slim_rl.backends.ready import check_games, check_model
from slim_rl.config import Config, read_yaml
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import deal, existing_rows, games_files, shortage
from slim_rl.dialogue.players import Partner, PartnerFailure, make_partner
from slim_rl.environment import Utterance, View, make_environment, reset_to
from slim_rl.errors import SlimError
from slim_rl.measured import measured
from slim_rl.partners.openai_chat import OpenAIPartner
from slim_rl.policies import load_tokenizer


@dataclass(frozen=True, slots=True)
class Check:
    """Line of the doctor's table. "fail": the run would not start or be wasted; "warn": it may disappoint."""

    name: str
    status: Literal["pass", "warn", "fail"]
    finding: str
    fix: str = ""


Examination = Callable[[Config], Iterable[Check]]


def verdict(name: str, finding: str, *, fail: str = "", warn: str = "") -> Check:
    """Returns a check that fails if there is something to fix."""
    return Check(name, "fail" if fail else "warn" if warn else "pass", finding, fail or warn)


def examine(config: Config, examinations: Mapping[str, Examination]) -> list[Check]:
    """Runs examinations one after another. What one raises becomes a failed check of its name."""
    checks: list[Check] = []
    for name, examination in examinations.items():
        try:
            checks.extend(examination(config))
        except Exception as error:  # a check that breaks is a finding like any other
            known = isinstance(error, SlimError)  # which says itself how to fix it
            reason = textwrap.shorten(str(error), 400, placeholder="...")
            broken = "If a class that the config names raised it, correct that class; otherwise report this line."
            fix = "" if known else broken
            checks.append(Check(name, "fail", reason if known else f"{type(error).__name__}: {reason}", fix))
    return checks


def check_packages(config: Config) -> Iterator[Check]:
    """Checks that the packages of the backend are installed, in tested versions."""
    wanted = read_yaml(Path(__file__).with_suffix(".yaml"))[config.train.backend]
    fix, packages = wanted["fix"], wanted["packages"]
    sys.path += [os.environ[name] for name in ("SLIME_DIR", "MEGATRON_DIR") if os.environ.get(name)]  # as a launch does
    for package in packages.format(engine=config.verl.engine).split():
        name, _, tried = package.partition("==")
        version = _installed_version(name)
        other = "" if fnmatch(version, tried or "*") else f"Tried with {tried}. {fix}"
        yield verdict(name, version or "not installed", fail="" if version else fix, warn=other)


def _installed_version(module: str) -> str:
    """Returns the version of an importable module, "unknown" for a checkout, empty if it is missing."""
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        return "unknown" if module in sys.modules or util.find_spec(module) else ""


def check_machine(config: Config) -> Iterator[Check]:
    """Checks that the backend can do what the config asks for, on this machine."""
    backends.check(config)
    lacks = backends.missing(config)
    fix = "Train elsewhere, or choose another backend." if lacks else ""
    yield verdict("machine", lacks or "has what a start needs", fail=fix)


def check_policy(config: Config) -> Iterator[Check]:
    """Checks that the model is here, its chat template against the token invariant, and the prompt's length against the context."""
    limits, model = config.limits, config.policy.model
    check_model(model)
    chat = Chat(load_tokenizer(model), config.policy.thinking)  # raises if the template breaks the invariant
    row = next(deal(config, "train", 1))
    env = make_environment(config)
    reset_to(env, row.game_state)
    prompt = len(chat.prompt_ids(env.prompt(0)))
    full = limits.context_tokens is not None and prompt + 2 * limits.turn_tokens > limits.context_tokens
    finding = f"{Path(model).name}: turns end cleanly; a prompt has {prompt} tokens"
    yield verdict("model", finding, fail="Raise limits.context_tokens." if full else "")


def check_data(config: Config) -> Iterator[Check]:
    """Checks the games files by the run's own rules: readable, made from this config, no game in both."""
    check_games(config)
    for split, (path, _) in games_files(config).items():
        if path.exists():
            rows = existing_rows(config, split)
            yield verdict(f"{split} games", f"{len(rows)} in {path}", warn=shortage(config, split, rows) or "")


def check_partner(config: Config) -> Iterator[Check]:
    """Checks that each partner answers one question with an action of the game."""
    # no waiting for an endpoint that is down, and no answer from a cassette
    patience = {"max_retries": 1, "outage_wait_minutes": 0.0, "cassette": None}
    for name, member in config.members.items():
        if member.opposite.recorded:
            yield Check("partner", "pass", f"{name}: recorded answers")
            continue
        partner = make_partner(member.changed(partner={"openai": patience}))
        nobody = Check("partner", "pass", "none: self-play, or a game for one")
        yield nobody if partner is None else _answers(config, name, partner)


def _answers(config: Config, name: str, partner: Partner) -> Check:
    """Asks a partner one question of the config's first game."""
    row, env = next(deal(config, "train", 1)), make_environment(config)
    reset_to(env, row.game_state)
    questions = measured(type(env)).questions_worth_asking(row.game_state, 0, 1, 0)
    for question in questions:
        env.step(question)
    history = tuple(Utterance(0, question) for question in questions)
    view = View(1, env.get_prompt_prefix(1), env.get_state_description(1), history, env.get_private_view(1), 0)
    started = time.monotonic()
    try:
        reply = asyncio.run(partner.act(view))
    except PartnerFailure as failure:
        fix = "Start what answers there, or correct partner.openai's base_url, model or key."
        return Check("partner", "fail", str(failure), fix)
    took = f"{time.monotonic() - started:.2f} s" + (f", ${reply.usage.cost_usd:.5f}" if reply.usage else "")
    error = env.step(reply.text)[2].get("error") if env.turn == 1 else None
    finding = f"{name} answered in {took}: {textwrap.shorten(reply.text, 80)!r}"
    fix = "Give the partner this game's rules (partner.openai.prompt), or name a partner of this game in partner.kind."
    ends = asyncio.run(partner.endpoint.shutdown_date()) if isinstance(partner, OpenAIPartner) else None
    return verdict(
        "partner",
        finding + (f", which the game refuses: {error}" if error else ""),
        warn=f"Its model ends on {ends}: finish the experiment before, or name another model." if ends else "",
        fail=fix if error else "",
    )


EXAMINATIONS: dict[str, Examination] = {
    "packages": check_packages,
    "machine": check_machine,
    "model": check_policy,
    "games": check_data,
    "partner": check_partner,
}
