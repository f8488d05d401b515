"""What every backend needs besides its packages: a chat template with clean token boundaries, games, a partner, GPUs, disk, a key."""

from __future__ import annotations

import asyncio
import contextlib
import netrc
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slim_rl.backends.checks import Check, failed, verdict
from slim_rl.backends.slime.model import count_parameters, read_model_config
from slim_rl.backends.slime.storage import locate_model
from slim_rl.config import Config
from slim_rl.dialogue.dealing import deal, existing_rows, games_file, shortage
from slim_rl.dialogue.factory import make_environment, make_partner
from slim_rl.dialogue.rows import GameRow, Split, read_rows
from slim_rl.environment import BaseEnvironment, Utterance, View
from slim_rl.errors import SlimError

GB, GIB = 1e9, 2**30


def check_tokenizer(config: Config) -> Check:
    """The chat template against the token invariant, and the prompt against the context."""
    from slim_rl.dialogue.chat import Chat
    from slim_rl.policies import load_tokenizer

    limits, model = config.limits, config.policy.model
    chat = Chat(load_tokenizer(model), config.policy.thinking)  # raises if the template breaks the invariant
    prompt = len(chat.prompt_ids(_dealt(config)[1].prompt(0)))
    found = f"{Path(model).name}: turns end cleanly; a prompt has {prompt} tokens"
    full = limits.context_tokens is not None and prompt + 2 * limits.turn_tokens > limits.context_tokens
    return verdict("tokenizer", found, fail="Raise limits.context_tokens." if full else "")


def check_data(config: Config) -> Iterator[Check]:
    """The games files that are there, by the rules of the run itself: readable, made from this config, and no game in both."""
    names: dict[Split, str] = {"train": "train games", "eval": "held-out games"}
    for split, name in names.items():
        file = games_file(config, split)
        if file is None:
            yield Check(
                name, "warn", "none", "Set data.eval and data.num_eval, to see learning on games not trained on."
            )
        elif file[0].exists():
            try:
                rows = existing_rows(config, split)
            except SlimError as error:
                yield failed("games", error, "Make the file anew, or correct the config.")
                return
            yield verdict(name, f"{len(rows)} in {file[0]}", warn=shortage(config, split, rows) or "")


def check_partner(config: Config) -> Iterator[Check]:
    """The partner answers one question, and what a run of it costs."""
    # no waiting for an endpoint that is down, and no answer from a cassette
    patience = {"max_retries": 1, "outage_wait_minutes": 0.0, "request_seconds": 30.0, "cassette": None}
    once = config.partner.model_copy(update={"openai": config.partner.openai.model_copy(update=patience)})
    partner = make_partner(config.model_copy(update={"partner": once}))
    if partner is None:
        yield Check("partner", "pass", "none: self-play, or a game for one")
        return
    if config.partner.kind == "openai":
        yield check_cost(config)
    row, env = _dealt(config)
    history = []
    for question in env.questions_worth_asking(row.game_state, 0, 1, 0):
        env.step(question)
        history.append(Utterance(0, question))
    view = View(1, env.get_prompt_prefix(1), env.get_state_description(1), tuple(history), env.get_private_view(1), 0)
    started = time.monotonic()
    reply = asyncio.run(partner.reply(view))
    cost = f", ${reply.usage.cost_usd:.5f}" if reply.usage else ""
    found = f"{config.partner.kind} answered in {time.monotonic() - started:.2f} s{cost}: {' '.join(reply.text.split())[:80]!r}"
    yield Check("partner", "pass", found)


def check_cost(config: Config) -> Check:
    """What the endpoint will cost in training, against the budget."""
    from slim_rl.partners.spend import estimate_cost

    train, budget = config.train, config.partner.openai.budget_usd
    estimate = estimate_cost(config.partner.openai, train.steps * train.games_per_step * train.group_size)
    found, usd = f"about {estimate['calls']:,} calls in training", estimate["usd"]
    if usd is None:
        return Check("partner's cost", "pass", f"{found}; {estimate['model']} has no price")
    found += f", ${usd:,.0f}, with " + ("no budget" if budget is None else f"a budget of ${budget:,.0f}")
    enough = budget is not None and budget >= usd
    fix = "Set partner.openai.budget_usd to what may be spent: calls stop there, and so does the run."
    return verdict("partner's cost", found, warn="" if enough else fix)


def check_tracker(config: Config) -> Iterator[Check]:
    """A key for Weights & Biases, where `train.report_to` names it."""
    there = os.environ.get("WANDB_MODE") in ("offline", "disabled") or bool(os.environ.get("WANDB_API_KEY"))
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        there = there or netrc.netrc().authenticators("api.wandb.ai") is not None
    if "wandb" in config.train.report_to:
        fix = "" if there else "Set WANDB_API_KEY, or WANDB_MODE=offline, or leave wandb out of train.report_to."
        yield verdict("W&B", "a key, or none is needed" if there else "no key", fail=fix)


def check_gpus(config: Config) -> Check:
    """There are as many GPUs as the run will use, and they are free."""
    gpus, wanted, backend = find_gpus(), wanted_gpus(config), config.train.backend
    if not gpus and backend == "trl":
        return Check("GPUs", "pass", "none; training runs on the CPU")
    if not gpus:
        fix = f"{backend} trains on GPUs alone. Run this on a GPU node; `make run` needs none."
        return Check("GPUs", "fail", f"none; 0 of the {wanted} that the run wants" if wanted else "none", fix)
    used = [gpu.used for gpu in gpus if gpu.used > 0.1 * gpu.total]
    found = f"{len(gpus)} × {gpus[0].name}, {gpus[0].total / GIB:.0f} GiB"
    found += f"; {len(used)} in use (up to {max(used) / GIB:.0f} GiB)" if used else ""
    few = f"Set {'verl.gpus' if backend == 'verl' else 'NUM_GPUS'}={len(gpus)}." if len(gpus) < wanted else ""
    return verdict("GPUs", found, fail=few, warn="CUDA_VISIBLE_DEVICES chooses others." if used else "")


def wanted_gpus(config: Config) -> int:
    """GPUs of a node that the run is set to use; 0: all that are there."""
    return config.verl.gpus if config.train.backend == "verl" else int(os.environ.get("NUM_GPUS") or 0)


class Gpu(NamedTuple):  # memory in bytes
    name: str
    total: float
    used: float


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine that CUDA_VISIBLE_DEVICES leaves, if any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return []
    command = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    command += [f"--id={visible}"] if visible else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.rsplit(",", 2) for line in done.stdout.splitlines() if line.count(",") >= 2]
    return [Gpu(name.strip(), float(total) * 2**20, float(used) * 2**20) for name, total, used in lines]


def check_disk(config: Config) -> Check:
    """Room for the checkpoints where the run will be written."""
    place = config.output_dir.absolute()
    folder = next(path for path in (place, *place.parents) if path.exists())
    try:
        parameters = count_parameters(model_shape(config.policy.model))
    except SlimError:  # the tokenizer's check says what is wrong with the model
        parameters = 0
    one = 14 * parameters  # bytes: bf16 weights, and Adam's two moments and master weights in float32
    free = shutil.disk_usage(folder).free
    every = config.train.steps // config.train.save_every + 1
    kept = config.train.keep_checkpoints if config.train.backend == "trl" else every
    found = f"{free / GB:,.0f} GB free in {folder}; {kept} checkpoints take about {kept * one / GB:,.1f} GB"
    small = "Set SAVE_DIR (output_dir) to a larger disk." if free < 2 * one + GB else ""
    few = "Raise train.save_every, or remove old checkpoints as the run goes." if free < kept * one else ""
    return verdict("disk", found, fail=small, warn=few)


def model_shape(model: str) -> dict[str, Any]:
    """The config.json of a folder or of a name on the hub. Raises SlimError if there is none."""
    return read_model_config(locate_model(model, download=False))


def _dealt(config: Config) -> tuple[GameRow, BaseEnvironment]:
    """The run's first game, freshly dealt where there is no file yet, and an environment that it is dealt to."""
    path = config.data.train
    row = read_rows(path)[0] if path.exists() else next(deal(config, "train", 1))
    env = make_environment(config)
    env.reset(row.game_state)
    return row, env


def go_offline_without_hub(model: str) -> None:
    """Spares the hub's clients two minutes of trying again where it cannot be reached: they read the variable when imported."""
    if Path(model).expanduser().is_dir() or os.environ.get("HF_HUB_OFFLINE"):
        return
    request = urllib.request.Request(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except (OSError, ValueError) as error:
        if not isinstance(error, urllib.error.HTTPError):  # with which it answers
            os.environ["HF_HUB_OFFLINE"] = "1"
