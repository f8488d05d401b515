"""Checks for every backend.

A check yields lines of the table. An exception becomes a failed line, and the other checks still run.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

from slim_rl import jsonl
from slim_rl.backends.checkpoints import count_parameters, locate_model, read_model_config
from slim_rl.backends.cost import cost_report, usd_expected
from slim_rl.backends.gpus import find_gpus
from slim_rl.backends.trackers import has_wandb_login
from slim_rl.config import Config, OpenAIConfig, hosted
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import deal, existing_rows, games_files, shortage
from slim_rl.dialogue.factory import costs_money, make_environment, make_partner
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.dialogue.rows import GameRow, Split, read_rows
from slim_rl.environment import BaseEnvironment, Utterance, View, reset_to
from slim_rl.errors import SlimError
from slim_rl.measured import measured
from slim_rl.partners.client import address_of, make_client
from slim_rl.partners.openai_chat import OpenAIPartner
from slim_rl.policies import load_tokenizer

GB, GIB = 1e9, 2**30
SPLITS: dict[Split, str] = {"train": "train games", "eval": "held-out games"}
# backend or tracker -> how to install its packages, and these with the versions that were tried
PACKAGES = {
    "trl": ("pip install -e '.[local]'", "torch==2.* transformers==5.* trl==1.16.0"),
    "slime": (
        "Use slime's container (docs/how-to/slime-launch.md), or set SLIME_DIR and MEGATRON_DIR; the package index's slime is a different project.",
        "torch==2.* transformers slime==0.3.1* sglang==0.5.15* ray==2.* megatron sglang_router",
    ),
    "verl": (
        "pip install -e '.[verl]'; its engine by itself, vllm or sglang, as verl.engine says.",
        "torch==2.* transformers==5.* verl==0.9.1 ray transfer_queue cachetools fastapi uvicorn {engine}",
    ),
    **{
        name: (f"pip install {name}, or leave it out of train.report_to.", name)
        for name in ("wandb", "mlflow", "trackio")
    },
}


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
            fix = "" if known else "Fix what the message names."
            checks.append(Check(name, "fail", reason if known else f"{type(error).__name__}: {reason}", fix))
    return checks


def check_packages(config: Config) -> Iterator[Check]:
    """Checks that the packages of the backend and the trackers are installed, in tested versions."""
    groups = {config.train.backend, *config.train.report_to}
    if "slime" in groups:  # checkouts are found as the launch finds them
        sys.path += [os.environ[name] for name in ("SLIME_DIR", "MEGATRON_DIR") if os.environ.get(name)]
    for fix, packages in (PACKAGES[group] for group in PACKAGES if group in groups):
        for package in packages.format(engine=config.verl.engine).split():
            name, _, tried = package.partition("==")
            version = installed_version(name)
            other = "" if fnmatch(version, tried or "*") else f"Tried with {tried}. {fix}"
            yield verdict(name, version or "not installed", fail="" if version else fix, warn=other)


def installed_version(module: str) -> str:
    """Returns the version of an importable module, "unknown" for a checkout, empty if it is missing."""
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        return "unknown" if module in sys.modules or util.find_spec(module) else ""


def check_tokenizer(config: Config) -> Iterator[Check]:
    """Checks the chat template against the token invariant, and the prompt's length against the context."""
    limits, model = config.limits, config.policy.model
    chat = Chat(load_tokenizer(model), config.policy.thinking)  # raises if the template breaks the invariant
    prompt = len(chat.prompt_ids(_dealt(config)[1].prompt(0)))
    full = limits.context_tokens is not None and prompt + 2 * limits.turn_tokens > limits.context_tokens
    finding = f"{Path(model).name}: turns end cleanly; a prompt has {prompt} tokens"
    yield verdict("tokenizer", finding, fail="Raise limits.context_tokens." if full else "")


def check_data(config: Config) -> Iterator[Check]:
    """Checks the games files by the run's own rules: readable, made from this config, no game in both."""
    dealt: set[bytes] = set()
    for split, name in SPLITS.items():
        file = games_files(config).get(split)
        if file is None:
            yield verdict(name, "none", warn="Set data.eval and data.num_eval, to see learning on new games.")
        elif file[0].exists():
            rows = existing_rows(config, split)
            states = [jsonl.encode(row.game_state) for row in rows]
            both = sum(state in dealt for state in states)
            dealt.update(states)
            finding = f"{len(rows)} in {file[0]}" + (f", {both} of them dealt as training games are" if both else "")
            by_heart = (
                "What is earned there may be learned by heart: have the game deal from more states." if both else ""
            )
            yield verdict(name, finding, warn=shortage(config, split, rows) or by_heart)


def check_partner(config: Config) -> Iterator[Check]:
    """Checks that the partner answers one question."""
    # no waiting for an endpoint that is down, and no answer from a cassette
    patience = {"max_retries": 1, "outage_wait_minutes": 0.0, "cassette": None}
    partner = make_partner(config.changed(partner={"openai": patience}))
    if partner is None:
        yield Check("partner", "pass", "none: self-play, or a game for one")
        return
    row, env = _dealt(config)
    questions = measured(type(env)).questions_worth_asking(row.game_state, 0, 1, 0)
    actions = [env.step(question)[2].get("action") for question in questions]
    history = tuple(Utterance(0, question) for question in questions)
    view = View(1, env.get_prompt_prefix(1), env.get_state_description(1), history, env.get_private_view(1), 0)
    started = time.monotonic()
    reply = asyncio.run(partner.act(view))
    seconds = time.monotonic() - started
    took = f"{seconds:.2f} s" + (f", ${reply.usage.cost_usd:.5f}" if reply.usage else "")
    finding = f"{config.partner.kind} answered in {took}: {textwrap.shorten(reply.text, 80)!r}"
    yield _judged(config, row, env, dict(zip(questions, actions, strict=True)), reply.text, finding)
    if isinstance(partner, OpenAIPartner):
        yield from _endpoint_checks(config, partner, seconds)


def _judged(
    config: Config, row: GameRow, env: BaseEnvironment, asked: dict[str, Any], reply: str, finding: str
) -> Check:
    """Checks that a reply is an action of the game and answers the question.

    A partner by name may keep silent.
    """
    game = measured(type(env))
    info = env.step(reply)[2] if env.turn == 1 else {}
    error = info.get("error")
    if error is not None:
        fix = "Give the partner this game's rules (partner.openai.prompt), or name a partner of this game in partner.kind."
        return verdict("partner", f"{finding}, which the game refuses: {error}", fail=fix)
    turns = [Turn(text, 0, "policy", action) for text, action in asked.items()]
    turns.append(Turn(reply, 1, "partner", info.get("action")))
    dialogue = Dialogue("doctor", row.game_id, 0, 0, row.game_state, {}, {}, config.environment, turns=turns)
    game.annotate(dialogue)
    scripted = config.partner.kind in type(env).partners and config.partner.kind != "openai"
    silent = bool(asked) and turns[-2].answered is False and not scripted
    fix = "Name a partner that answers direct questions in this game, or give it other rules (partner.openai.prompt)."
    return verdict(
        "partner", f"{finding}, which does not answer {next(iter(asked))!r}" if silent else finding, fail=fix * silent
    )


def _endpoint_checks(config: Config, partner: OpenAIPartner, seconds: float) -> Iterator[Check]:
    """Yields checks of the endpoint from its one call: it reads whole prompts, and takes several requests at once."""
    if partner.warnings:
        fix = "See docs/how-to/partners.md, 'A local model'."
        yield verdict("partner's endpoint", " ".join(partner.warnings), warn=fix)
    openai, at_once = config.partner.openai, config.partner_concurrency
    fit = max(1, int(openai.request_seconds / max(seconds, 1e-3)))
    if partner.endpoint.address.is_local and fit < at_once:
        finding = (
            f"{seconds:.1f} s a reply: {at_once} at once take {seconds * at_once:.0f} s if they are answered one by one"
        )
        fix = (
            f"Set partner.openai.concurrency={fit}, or raise partner.openai.request_seconds and turn_seconds to at least "
            f"{math.ceil(2 * seconds * at_once)}."
        )
        yield verdict("partner's pace", finding, warn=fix)


def check_model(config: Config) -> Iterator[Check]:
    """Checks that the partner's endpoint lists its model, and that the model has no known end of service.

    `check_partner` reports a key or URL that cannot be used.
    """
    openai = config.partner.openai
    if not costs_money(config) or openai.cassette_mode == "replay":
        return
    try:
        url, listed = asyncio.run(list_models(openai.changed(request_seconds=10.0)))
    except SlimError:
        return
    missing = bool(listed) and openai.model not in listed
    finding = f"{openai.model} is {'not ' if missing else ''}among the {len(listed)} models of {url}"
    finding = finding if listed else f"{url} has no list of its models"
    dated = hosted.entry_of(openai.model, hosted.SHUTDOWNS)
    if dated:
        finding += f"; public pages date the shutdown of {dated} {hosted.SHUTDOWNS[dated]} (not verified)"
    others = " or ".join(f"{model} ({switch})" for model, switch in hosted.SUCCESSORS.items())
    yield verdict("partner's model", finding, warn=f"Partners to try: {others}." if missing or dated else "")


async def list_models(config: OpenAIConfig) -> tuple[str, list[str]]:
    """Returns the endpoint's URL and the models that it lists; none if it has no list or does not answer.

    Raises:
        ConfigError: no key, or a URL that cannot be used.
    """
    from openai import OpenAIError

    address = address_of(config)
    async with make_client(address, config) as client:
        try:
            async with asyncio.timeout(config.request_seconds):
                return address.url, [
                    str(model["id"]) for model in json.loads(await client.get("/models", cast_to=str))["data"]
                ]
        except (OpenAIError, TimeoutError, ValueError, LookupError, TypeError, RecursionError):
            return address.url, []


def check_cost(config: Config, eval_interval: int = 0) -> Iterator[Check]:
    """Compares the endpoint's cost in training and evaluation (on slime every `eval_interval` steps) with the budget."""
    if not costs_money(config):
        return
    openai = config.partner.openai
    finding = cost_report(config, eval_interval)
    usd = usd_expected(config, eval_interval) if finding else None
    few = none = ""
    if usd is not None and openai.budget_usd is None:
        none = (
            "Set partner.openai.budget_usd to what may be spent: calls stop there, and the run ends once it has saved."
        )
    elif usd is not None and openai.budget_usd is not None and openai.budget_usd < usd:
        few = f"Set partner.openai.budget_usd={math.ceil(usd)} or more, or lower train.steps: the run would stop before its last step."
    yield verdict("partner's cost", finding or "nothing: all answers are the cassette's", fail=few, warn=none)


def check_tracker(config: Config) -> Iterator[Check]:
    """Checks for a Weights & Biases key if `train.report_to` names wandb."""
    if "wandb" in config.train.report_to:
        there = has_wandb_login()
        fix = "" if there else "Set WANDB_API_KEY, or WANDB_MODE=offline, or leave wandb out of train.report_to."
        yield verdict("W&B", "a key, or none is needed" if there else "no key", fail=fix)


def check_gpus(config: Config, wanted: int = 0, setting: str = "") -> Iterator[Check]:
    """Checks that the machine has as many free GPUs as `setting` asks for."""
    gpus = find_gpus()
    used = [gpu.used for gpu in gpus if gpu.used > 0.1 * gpu.total]
    finding = f"0 of the {wanted} that are needed" if wanted else "none; training runs on the CPU"
    if gpus:
        finding = f"{len(gpus)} × {gpus[0].name}, {gpus[0].total / GIB:.0f} GiB"
    finding += f"; {len(used)} in use (up to {max(used) / GIB:.0f} GiB)" if used else ""
    fewer = f"Set {setting}={len(gpus)}." if gpus else "Run this on a node that has GPUs; `make run` needs none."
    busy = "CUDA_VISIBLE_DEVICES chooses others." if used else ""
    yield verdict("GPUs", finding, fail=fewer if len(gpus) < wanted else "", warn=busy)


def check_disk(config: Config, save_dir: str = "") -> Iterator[Check]:
    """Checks the disk space for the checkpoints, in `save_dir` or the config's folder of runs."""
    place = Path(save_dir or config.output_dir).expanduser().absolute()
    folder = next(path for path in (place, *place.parents) if path.exists())
    parameters = count_parameters(read_model_config(locate_model(config.policy.model, download=False)))
    one = 14 * parameters  # bytes: bf16 weights, and Adam's two moments and master weights in float32
    free, train = shutil.disk_usage(folder).free, config.train
    checkpoints = train.steps // train.save_every + 1  # of which slime removes none
    checkpoints = checkpoints if train.backend == "slime" else min(checkpoints, train.keep_checkpoints)
    finding = (
        f"{free / GB:,.0f} GB free in {folder}; {checkpoints} checkpoints take about {checkpoints * one / GB:,.1f} GB"
    )
    small = "Set SAVE_DIR (output_dir) to a larger disk." if free < 2 * one + GB else ""
    few = "Raise train.save_every, or remove old checkpoints as the run goes." if free < checkpoints * one else ""
    yield verdict("disk", finding, fail=small, warn=few)


def _dealt(config: Config) -> tuple[GameRow, BaseEnvironment]:
    """Returns the run's first game and an environment reset to it; the game is generated if there is no file yet."""
    path = config.data.train
    row = read_rows(path)[0] if path.exists() else next(deal(config, "train", 1))
    env = make_environment(config)
    reset_to(env, row.game_state)
    return row, env


EXAMINATIONS: dict[str, Examination] = {
    "packages": check_packages,
    "tokenizer": check_tokenizer,
    "games": check_data,
    "partner's cost": check_cost,
    "partner": check_partner,
    "partner's model": check_model,
    "W&B": check_tracker,
    "GPUs": check_gpus,
    "disk": check_disk,
}
