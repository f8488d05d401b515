"""What every backend needs: its packages, a chat template with clean token boundaries, games, a partner, GPUs, disk."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from slim_rl.backends.checks import Check, Patient, sentence
from slim_rl.backends.slime.model import count_parameters, read_model_config
from slim_rl.backends.slime.storage import locate_model
from slim_rl.config import Config
from slim_rl.dialogue.dealing import deal, ensure_games
from slim_rl.dialogue.factory import make_environment, make_partner
from slim_rl.dialogue.rows import GameRow, read_rows
from slim_rl.environment import BaseEnvironment, Utterance, View
from slim_rl.errors import SlimError

GB, GIB = 1e9, 2**30
# distribution -> versions it was tried with; a prefix will do
_PACKAGES = {
    "trl": {"torch": "2.", "transformers": "5.", "trl": "1.16.0"},
    "slime": {"torch": "2.", "transformers": ""},
    "verl": {"torch": "2.", "transformers": "5."},  # its own doctor looks at verl itself
}
_EXTRA = {"trl": "local", "slime": "slime", "verl": "verl"}
# Bytes of a checkpoint a parameter: bf16 weights, and Adam's two moments and master weights in float32.
CHECKPOINT_BYTES, TORCH_DIST_BYTES = 14, 2


def check_packages(patient: Patient) -> Sequence[Check]:
    """The versions of what the backend rests on."""
    checks = []
    for name, tried in _PACKAGES[patient.backend].items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            mend = f"pip install -e '.[{_EXTRA[patient.backend]}]'"
            checks.append(Check(name, "fail", "not installed", mend))
            continue
        if version.startswith(tried):
            checks.append(Check(name, "pass", version))
        else:
            wanted = f"{name}=={tried.rstrip('.')}.*"
            checks.append(Check(name, "warn", f"{version}; tried with {tried}", f"pip install '{wanted}'"))
    return checks


def check_tokenizer(patient: Patient) -> Check:
    """The chat template against the token invariant, and the prompt against the context."""
    from transformers import AutoTokenizer

    from slim_rl.dialogue.chat import Chat
    from slim_rl.policies import check_model_name

    config, name = patient.config, "tokenizer"
    model = config.policy.model
    try:
        check_model_name(model)
        tokenizer = AutoTokenizer.from_pretrained(model)
    except Exception as error:
        mend = "Set policy.model (MODEL of run_matching.sh) to a checkpoint folder or a name on the hub."
        return Check(name, "fail", f"no tokenizer in {model}: {sentence(error)}", mend)
    chat = Chat(tokenizer, config.policy.thinking)  # raises if the template breaks the invariant
    _, env = _game(config)
    prompt = len(chat.prompt_ids(env.prompt(0)))
    history = (
        "" if chat.keeps_history else ", template rewrites earlier turns (the policy's tokens are kept as sampled)"
    )
    found = f"{Path(model).name}: turns end cleanly{history}; a prompt has {prompt} tokens"
    room = config.limits.context_tokens
    if room is not None and prompt + 2 * config.limits.turn_tokens > room:
        return Check(name, "fail", f"{found}, of a context of {room}", "Raise limits.context_tokens.")
    return Check(name, "pass", found)


def check_data(patient: Patient) -> Sequence[Check]:
    """The games files: readable, made from this config, and no game in both."""
    data = patient.config.data
    checks: list[Check] = []
    paths = {"train games": data.train, "held-out games": data.eval}
    for name, path in paths.items():
        if path is None:
            mend = "Set data.eval, so that learning shows on games not trained on."
            checks.append(Check(name, "warn", "none", mend))
        elif path.exists():
            checks.append(Check(name, "pass", f"{len(read_rows(path))} in {path}"))
        else:
            checks.append(Check(name, "pass", f"{path} is made when the run starts"))
    if all(path is None or path.exists() for path in paths.values()):
        try:
            ensure_games(patient.config)  # makes nothing here: it holds what is there against the config
        except SlimError as error:
            checks.append(
                Check("games", "fail", str(error), "Remove the file, and it is made anew; or mend the config.")
            )
    return checks


def check_partner(patient: Patient) -> Sequence[Check]:
    """The partner answers a question, and what a run of it costs."""
    config, name = patient.config, "partner"
    if config.selfplay:
        return [Check(name, "pass", "self-play: the policy on both seats")]
    if make_environment(config).seats == 1:
        return [Check(name, "pass", "a game for one")]
    if config.partner.kind == "openai" and not patient.call_partner:
        return [Check(name, "warn", "the endpoint was not called", "Have it called before an expensive run.")]
    from slim_rl.dialogue.partner import PartnerFailure

    view = _asked(config)
    # one call now: no waiting for an endpoint that is down, and no answer from a cassette
    patience = {"max_retries": 1, "outage_wait_minutes": 0.0, "request_seconds": 30.0, "cassette": None}
    once = config.partner.model_copy(update={"openai": config.partner.openai.model_copy(update=patience)})
    partner = make_partner(config.model_copy(update={"partner": once}))
    assert partner is not None
    started = time.monotonic()
    try:
        reply = asyncio.run(partner.reply(view))
    except PartnerFailure as failure:
        mend = f"Check partner.openai.base_url, the model's name and the key in {config.partner.openai.api_key_env}."
        return [Check(name, "fail", sentence(failure), mend), *_partner_cost(config)]
    seconds = time.monotonic() - started
    cost = f", ${reply.usage.cost_usd:.5f}" if reply.usage else ""
    said = " ".join(reply.text.split())
    answer = Check(name, "pass", f"{config.partner.kind} answered in {seconds:.2f} s{cost}: {said[:80]!r}")
    return [answer, *_partner_cost(config)]


def _asked(config: Config) -> View:
    """What the partner sees when it is first to answer: in the matching game, a question about one pair."""
    _, env = _game(config)
    history: tuple[Utterance, ...] = ()
    roster = getattr(env.get_private_view(0), "roster", None)
    if roster is not None:
        question = f"[message] What is your score for {roster.reviewers[0]} on {roster.short_papers[0]}?"
        env.step(question)
        history = (Utterance(0, question),)
    seat = env.seats - 1
    return View(
        seat, env.get_prompt_prefix(seat), env.get_state_description(seat), history, env.get_private_view(seat), 0
    )


def _partner_cost(config: Config) -> list[Check]:
    if config.partner.kind != "openai":
        return []
    from slim_rl.partners.spend import estimate_cost

    name, train = "partner's cost", config.train
    estimate = estimate_cost(config.partner.openai, train.steps * train.games_per_step * train.group_size)
    budget = config.partner.openai.budget_usd
    if estimate["usd"] is None:
        return [Check(name, "pass", f"about {estimate['calls']:,} calls; {estimate['model']} has no price")]
    limit = f"a budget of ${budget:,.0f}" if budget else "no budget"
    found = f"about ${estimate['usd']:,.0f} for {estimate['calls']:,} calls in training, with {limit}"
    if budget is None:
        return [Check(name, "warn", found, "Set partner.openai.budget_usd: calls stop there.")]
    if budget < estimate["usd"]:
        return [
            Check(name, "warn", found, "Raise partner.openai.budget_usd or lower train.steps, or the run stops short.")
        ]
    return [Check(name, "pass", found)]


def check_gpus(patient: Patient) -> Check:
    """How many GPUs are here, and whether they are free."""
    gpus = find_gpus()
    wanted = patient.gpus
    if not gpus:
        if patient.backend == "trl":
            found = "none; training runs on the CPU"
            small = _parameters(patient.config) < 50e6
            return Check(
                "GPUs", "pass" if small else "warn", found, "" if small else "Take a GPU for a model of this size."
            )
        mend = f"{patient.backend} trains on GPUs alone. Run this on a GPU node; `make run` needs none."
        return Check("GPUs", "fail", "nvidia-smi shows none", mend)
    found = f"{len(gpus)} × {gpus[0].name}, {gpus[0].total / GIB:.0f} GiB"
    if wanted and len(gpus) < wanted:
        return Check("GPUs", "fail", f"{found}; the run wants {wanted}", f"Set NUM_GPUS={len(gpus)}.")
    busy = [gpu for gpu in gpus if gpu.used > 0.1 * gpu.total]
    if busy:
        held = max(gpu.used for gpu in busy) / GIB
        found += f"; {len(busy)} in use (up to {held:.0f} GiB)"
        return Check(
            "GPUs", "warn", found, "See whose processes `nvidia-smi` lists; CUDA_VISIBLE_DEVICES chooses others."
        )
    return Check("GPUs", "pass", found)


class Gpu:
    """One GPU as nvidia-smi reports it; memory in bytes."""

    def __init__(self, line: str) -> None:
        name, total, used = (part.strip() for part in line.rsplit(",", 2))
        self.name, self.total, self.used = name, float(total) * 2**20, float(used) * 2**20


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
    return [Gpu(line) for line in done.stdout.splitlines() if line.count(",") >= 2]


def check_disk(patient: Patient) -> Check:
    """Room for the checkpoints where the run will be written."""
    config = patient.config
    folder = next(
        path for path in (config.output_dir.absolute(), *config.output_dir.absolute().parents) if path.exists()
    )
    free = shutil.disk_usage(folder).free
    one = CHECKPOINT_BYTES * _parameters(config)
    kept = config.train.steps // config.train.save_every + 1
    if patient.backend == "trl":
        kept = config.train.keep_checkpoints
    need = kept * one + TORCH_DIST_BYTES * _parameters(config)
    found = f"{free / GB:,.0f} GB free in {folder}; {kept} checkpoints take about {need / GB:,.1f} GB"
    if free < 2 * one + GB:
        return Check("disk", "fail", found, "Set SAVE_DIR (output_dir) to a larger disk.")
    if free < need:
        return Check("disk", "warn", found, "Raise train.save_every, or remove old checkpoints as the run goes.")
    return Check("disk", "pass", found)


def _parameters(config: Config) -> float:
    """The policy's parameters, 0 where its config.json cannot be had (the tokenizer's check says so)."""
    try:
        return count_parameters(model_shape(config.policy.model))
    except (SlimError, KeyError, ValueError):
        return 0.0


@functools.cache
def model_shape(model: str) -> dict[str, Any]:
    """The config.json of a folder or of a name on the hub. Raises SlimError if there is none."""
    return read_model_config(locate_model(model, download=False))


def _game(config: Config) -> tuple[GameRow, BaseEnvironment]:
    """One of the run's games, freshly dealt where there is no file yet, and its environment with that game on the table."""
    path = config.data.train
    game = read_rows(path)[0] if path.exists() else next(deal(config, "train", 1))
    env = make_environment(config)
    env.reset(game.game_state)
    return game, env
