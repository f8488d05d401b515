"""What every backend needs: its packages, a chat template with clean token boundaries, games, a partner, a tracker, GPUs, disk."""

from __future__ import annotations

import asyncio
import functools
import netrc
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from slim_rl.backends.checks import Check, Target, sentence
from slim_rl.config import Config
from slim_rl.dialogue.dealing import deal, existing_rows, games_file, shortage
from slim_rl.dialogue.factory import make_environment, make_partner
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.rows import GameRow, Split, read_rows
from slim_rl.environment import BaseEnvironment, Utterance, View
from slim_rl.errors import SlimError

GB, GIB = 1e9, 2**30
HUB_SECONDS = 5  # to wait for the hub's first answer
# distribution -> versions it was tried with; a prefix will do
_PACKAGES = {
    "trl": {"torch": "2.", "transformers": "5.", "trl": "1.16.0"},
    "slime": {"torch": "2.", "transformers": ""},
    "verl": {"torch": "2.", "transformers": "5."},  # its own doctor looks at verl itself
}
_EXTRA = {"trl": "local", "slime": "slime", "verl": "verl"}
# Bytes of a checkpoint a parameter: bf16 weights, and Adam's two moments and master weights in float32.
CHECKPOINT_BYTES, TORCH_DIST_BYTES = 14, 2


def check_packages(target: Target) -> Sequence[Check]:
    """The versions of what the backend rests on."""
    checks = []
    for name, tried in _PACKAGES[target.backend].items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            checks.append(Check(name, "fail", "not installed", f"pip install -e '.[{_EXTRA[target.backend]}]'"))
            continue
        if version.startswith(tried):
            checks.append(Check(name, "pass", version))
        else:
            fix = f"pip install '{name}=={tried.rstrip('.')}.*'"
            checks.append(Check(name, "warn", f"{version}; tried with {tried}", fix))
    return checks


def check_tokenizer(target: Target) -> Check:
    """The chat template against the token invariant, and the prompt against the context."""
    from slim_rl.dialogue.chat import Chat
    from slim_rl.policies import load_tokenizer

    limits, model = target.config.limits, target.config.policy.model
    chat = Chat(load_tokenizer(model), target.config.policy.thinking)  # raises if the template breaks the invariant
    prompt = len(chat.prompt_ids(_dealt(target.config)[1].prompt(0)))
    history = "" if chat.keeps_history else ", template rewrites earlier turns (the policy's tokens stay as sampled)"
    found = f"{Path(model).name}: turns end cleanly{history}; a prompt has {prompt} tokens"
    if limits.context_tokens is not None and prompt + 2 * limits.turn_tokens > limits.context_tokens:
        found += f", of a context of {limits.context_tokens}"
        return Check("tokenizer", "fail", found, "Raise limits.context_tokens.")
    return Check("tokenizer", "pass", found)


def check_data(target: Target) -> Sequence[Check]:
    """The games files, by the rules of the run itself: readable, made from this config, and no game in both."""
    config, checks = target.config, []
    names: dict[Split, str] = {"train": "train games", "eval": "held-out games"}
    for split, name in names.items():
        file = games_file(config, split)
        if file is None:
            fix = "Set data.eval and data.num_eval, so that learning shows on games not trained on."
            checks.append(Check(name, "warn", "none", fix))
        elif not file[0].exists():
            checks.append(Check(name, "pass", f"{file[0]} is made when the run starts"))
        else:
            try:
                rows = existing_rows(config, split)
            except SlimError as error:
                return [*checks, Check("games", "fail", str(error), "Make the file anew, or correct the config.")]
            short = shortage(config, split, rows)
            checks.append(Check(name, "warn" if short else "pass", f"{len(rows)} in {file[0]}", short or ""))
    return checks


def check_partner(target: Target) -> Sequence[Check]:
    """The partner answers a question, and what a run of it costs."""
    config, name = target.config, "partner"
    if config.selfplay:
        return [Check(name, "pass", "self-play: the policy on both seats")]
    if make_environment(config).seats == 1:
        return [Check(name, "pass", "a game for one")]
    if config.partner.kind == "openai" and not target.call_partner:
        return [Check(name, "warn", "the endpoint was not called", "Have it called before an expensive run.")]
    # one call now: no waiting for an endpoint that is down, and no answer from a cassette
    patience = {"max_retries": 1, "outage_wait_minutes": 0.0, "request_seconds": 30.0, "cassette": None}
    once = config.partner.model_copy(update={"openai": config.partner.openai.model_copy(update=patience)})
    partner = make_partner(config.model_copy(update={"partner": once}))
    assert partner is not None
    started = time.monotonic()
    try:
        reply = asyncio.run(partner.reply(_asked(config)))
    except PartnerFailure as failure:
        fix = f"Check partner.openai.base_url, the model's name and the key in {config.partner.openai.api_key_env}."
        return [Check(name, "fail", sentence(failure), fix), *_partner_cost(config)]
    seconds = time.monotonic() - started
    cost = f", ${reply.usage.cost_usd:.5f}" if reply.usage else ""
    said = " ".join(reply.text.split())
    answer = Check(name, "pass", f"{config.partner.kind} answered in {seconds:.2f} s{cost}: {said[:80]!r}")
    return [answer, *_partner_cost(config)]


def _asked(config: Config) -> View:
    """What the partner sees when it is first to answer: a question worth asking, in a game that knows any."""
    row, env = _dealt(config)
    history = []
    for question in env.questions_worth_asking(row.game_state, 0, 1, 0):
        env.step(question)
        history.append(Utterance(0, question))
    return View(1, env.get_prompt_prefix(1), env.get_state_description(1), tuple(history), env.get_private_view(1), 0)


def _partner_cost(config: Config) -> list[Check]:
    if config.partner.kind != "openai":
        return []
    from slim_rl.partners.spend import estimate_cost

    name, train, budget = "partner's cost", config.train, config.partner.openai.budget_usd
    estimate = estimate_cost(config.partner.openai, train.steps * train.games_per_step * train.group_size)
    if estimate["usd"] is None:
        return [Check(name, "pass", f"about {estimate['calls']:,} calls; {estimate['model']} has no price")]
    limit = f"a budget of ${budget:,.0f}" if budget else "no budget"
    found = f"about ${estimate['usd']:,.0f} for {estimate['calls']:,} calls in training, with {limit}"
    if budget is None:
        return [Check(name, "warn", found, "Set partner.openai.budget_usd: calls stop there.")]
    if budget < estimate["usd"]:
        fix = "Raise partner.openai.budget_usd or lower train.steps, or the run stops short."
        return [Check(name, "warn", found, fix)]
    return [Check(name, "pass", found)]


def check_tracker(target: Target) -> Sequence[Check]:
    """Weights & Biases, where `train.report_to` names it: installed, and with a key."""
    name = "W&B"
    if "wandb" not in target.config.train.report_to:
        return []
    if util.find_spec("wandb") is None:
        return [Check(name, "fail", "wandb is not installed", "pip install wandb, or leave it out of train.report_to.")]
    if (mode := os.environ.get("WANDB_MODE")) in ("offline", "disabled"):
        return [Check(name, "pass", f"WANDB_MODE is {mode}")]
    if os.environ.get("WANDB_API_KEY") or _in_netrc("api.wandb.ai"):
        return [Check(name, "pass", "a key is set")]
    fix = "Set WANDB_API_KEY, or WANDB_MODE=offline, or leave wandb out of train.report_to."
    return [Check(name, "fail", "train.report_to has wandb, but there is no key", fix)]


def _in_netrc(host: str) -> bool:
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def check_gpus(target: Target) -> Check:
    """How many GPUs are here, and whether they are free."""
    gpus = find_gpus()
    if not gpus and target.backend == "trl":
        found, small = "none; training runs on the CPU", _parameters(target.config) < 50e6
        return Check("GPUs", "pass" if small else "warn", found, "" if small else "Take a GPU for so large a model.")
    if not gpus:
        fix = f"{target.backend} trains on GPUs alone. Run this on a GPU node; `make run` needs none."
        return Check("GPUs", "fail", "nvidia-smi shows none", fix)
    found = f"{len(gpus)} × {gpus[0].name}, {gpus[0].total / GIB:.0f} GiB"
    if target.gpus and len(gpus) < target.gpus:
        return Check("GPUs", "fail", f"{found}; the run wants {target.gpus}", f"Set NUM_GPUS={len(gpus)}.")
    if busy := [gpu for gpu in gpus if gpu.used > 0.1 * gpu.total]:
        found += f"; {len(busy)} in use (up to {max(gpu.used for gpu in busy) / GIB:.0f} GiB)"
        fix = "See whose processes `nvidia-smi` lists; CUDA_VISIBLE_DEVICES chooses others."
        return Check("GPUs", "warn", found, fix)
    return Check("GPUs", "pass", found)


class Gpu(NamedTuple):
    """One GPU as nvidia-smi reports it; memory in bytes."""

    name: str
    total: float
    used: float


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine that CUDA_VISIBLE_DEVICES leaves, if any."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return []
    if visible is not None:
        command.append(f"--id={visible}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.rsplit(",", 2) for line in done.stdout.splitlines() if line.count(",") >= 2]
    return [Gpu(name.strip(), float(total) * 2**20, float(used) * 2**20) for name, total, used in lines]


def check_disk(target: Target) -> Check:
    """Room for the checkpoints where the run will be written."""
    config, place = target.config, target.config.output_dir.absolute()
    folder = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    parameters = _parameters(config)
    every = config.train.steps // config.train.save_every + 1
    kept = config.train.keep_checkpoints if target.backend == "trl" else every
    need = (kept * CHECKPOINT_BYTES + TORCH_DIST_BYTES) * parameters
    found = f"{free / GB:,.0f} GB free in {folder}; {kept} checkpoints take about {need / GB:,.1f} GB"
    if not os.access(folder, os.W_OK):
        return Check("disk", "fail", f"{folder} may not be written to", "Set SAVE_DIR (output_dir) to another folder.")
    if free < 2 * CHECKPOINT_BYTES * parameters + GB:
        return Check("disk", "fail", found, "Set SAVE_DIR (output_dir) to a larger disk.")
    if free < need:
        return Check("disk", "warn", found, "Raise train.save_every, or remove old checkpoints as the run goes.")
    return Check("disk", "pass", found)


def go_offline_without_hub(model: str) -> None:
    """Spares the hub's clients, which read the variable when they are imported, two minutes of trying again where it cannot be
    reached. Does nothing for a model in a folder.
    """
    if Path(model).expanduser().is_dir() or "HF_HUB_OFFLINE" in os.environ:
        return
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(hub, method="HEAD"), timeout=HUB_SECONDS).close()
    except urllib.error.HTTPError:  # it answers
        return
    except (OSError, ValueError):
        os.environ["HF_HUB_OFFLINE"] = "1"


@functools.cache
def model_shape(model: str) -> dict[str, Any]:
    """The config.json of a folder or of a name on the hub. Raises SlimError if there is none."""
    from slim_rl.backends.slime.model import read_model_config
    from slim_rl.backends.slime.storage import locate_model

    return read_model_config(locate_model(model, download=False))


def _parameters(config: Config) -> float:
    """The policy's parameters, 0 where its config.json cannot be had or read (the tokenizer's check says so)."""
    from slim_rl.backends.slime.model import count_parameters

    try:
        return count_parameters(model_shape(config.policy.model))
    except (SlimError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return 0.0


def _dealt(config: Config) -> tuple[GameRow, BaseEnvironment]:
    """The run's first game, freshly dealt where there is no file yet, and an environment that it is dealt to."""
    path = config.data.train
    row = read_rows(path)[0] if path.exists() else next(deal(config, "train", 1))
    env = make_environment(config)
    env.reset(row.game_state)
    return row, env
