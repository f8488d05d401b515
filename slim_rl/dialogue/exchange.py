"""Dialogues in the formats of others: a pure function each, from dialogues to JSON-able values.

    a file says what the log says, once, and nothing else: what the log has not (token ids, a date of its own) is left out

Session traces are of the Hugging Face Hub, trajectories (ATIF) of Harbor, evaluation logs of inspect_ai. None of their packages is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from slim_rl import __version__
from slim_rl.dialogue.record import Dialogue, Turn

HARNESS = "slim_rl"
ATIF = "ATIF-v1.7"


def session_trace(dialogue: Dialogue) -> list[dict[str, Any]]:
    """The lines of a session trace: its header, then a message each."""
    header = {"type": "session", "harness": HARNESS, "id": name(dialogue), "name": title(dialogue), **facts(dialogue)}
    lines = []
    for message in messages(dialogue):
        renamed = {"reasoningContent" if key == "thought" else key: value for key, value in message.items()}
        if message["role"] == "assistant":
            renamed["model"] = model(dialogue)
        lines.append({"type": "message", "message": renamed})
    return [header, *lines]


def trajectory(dialogue: Dialogue) -> dict[str, Any]:
    """An ATIF trajectory. Its agent is the policy; the other seat is its user."""
    sources = {"system": "system", "assistant": "agent"}
    steps = [{"source": sources.get(said["role"], "user"), "message": said["content"]} for said in dialogue.prompt]
    steps += [_step(dialogue, turn) for turn in _after_prompt(dialogue)]
    total = {}
    if dialogue.tokens or dialogue.response_ids:
        total["total_completion_tokens"] = (dialogue.tokens or {}).get("policy", sum(dialogue.loss_mask))
    return {
        "schema_version": ATIF,
        "session_id": name(dialogue),
        "agent": {"name": HARNESS, "version": __version__, "model_name": model(dialogue)},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {"total_steps": len(steps), **total, "extra": facts(dialogue)},
    }


def eval_log(dialogues: Sequence[Dialogue], created: datetime) -> dict[str, Any]:
    """An inspect_ai evaluation log of dialogues of one run and phase, a sample each; the scorer is the game's reward."""
    first = dialogues[0]
    task, date = "/".join(filter(None, (first.run, first.arm, first.phase))), created.isoformat()
    digest = hashlib.sha256("\n".join(map(name, dialogues)).encode()).hexdigest()
    rewards = [dialogue.reward for dialogue in dialogues if dialogue.reward is not None]
    mean = {"mean": {"name": "mean", "value": sum(rewards) / len(rewards)}} if rewards else {}
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": digest[:22],
            "run_id": digest[22:44],
            "task": task,
            "task_id": digest[42:],
            "created": date,
            "dataset": {"name": first.environment, "samples": len(dialogues)},
            "model": model(first),
            "config": {},
            "packages": {HARNESS: __version__},
        },
        "results": {
            "total_samples": len(dialogues),
            "completed_samples": len(rewards),
            "scores": [{"name": "reward", "scorer": "reward", "metrics": mean}],
        },
        "stats": {"started_at": date, "completed_at": date},
        "samples": [_sample(dialogue) for dialogue in dialogues],
    }


def _sample(dialogue: Dialogue) -> dict[str, Any]:
    opening = len(dialogue.prompt)
    said = [_for_inspect(message, later=number >= opening) for number, message in enumerate(messages(dialogue))]
    answers = [message for message in said if message["role"] == "assistant"]
    ending: dict[str, Any] = {}
    if dialogue.reward is not None:
        ending["scores"] = {"reward": {"value": dialogue.reward, "explanation": str(dialogue.stop_reason)}}
    else:
        why = dialogue.failure or str(dialogue.stop_reason)
        ending["error"] = {"message": why, "traceback": "", "traceback_ansi": ""}
    output = {"model": model(dialogue), "choices": [{"message": each, "stop_reason": "stop"} for each in answers[-1:]]}
    return {
        "id": name(dialogue),
        "epoch": 1,
        "input": [_for_inspect(message) for message in dialogue.prompt],
        "target": "",
        "messages": said,
        "output": output,
        "metadata": facts(dialogue),
        "total_time": dialogue.seconds,
        **ending,
    }


def _for_inspect(message: dict[str, str], later: bool = False) -> dict[str, Any]:
    """A message for `inspect view`, which shows all system messages at the top: a `later` one, a refusal, is said as a user's."""
    plain = {"role": message["role"], "content": message["content"]}
    if later and message["role"] == "system":
        return {"role": "user", "content": f"Refused: {message['content']}"}
    if not message.get("thought"):
        return plain
    parts = [{"type": "reasoning", "reasoning": message["thought"]}, {"type": "text", "text": message["content"]}]
    return {**plain, "content": parts}


def messages(dialogue: Dialogue) -> list[dict[str, str]]:
    """What was said as chat messages: the policy's as the assistant's, with its `thought`; why the game refused one as the system's."""
    said = [{"role": message["role"], "content": message["content"]} for message in dialogue.prompt]
    for turn in _after_prompt(dialogue):
        thought = {"thought": turn.thought} if turn.thought else {}
        said.append({"role": "assistant" if turn.role == "policy" else "user", "content": turn.text, **thought})
        if turn.error:
            said.append({"role": "system", "content": turn.error})
        if turn.observation:
            said.append({"role": "user", "content": turn.observation})
    return said


def _after_prompt(dialogue: Dialogue) -> list[Turn]:
    """The turns without the one that the prompt ends with: what the other seat said before the policy first spoke."""
    first = next((number for number, turn in enumerate(dialogue.turns) if turn.role == "policy"), 0)
    heard = max((number for number in range(first) if dialogue.turns[number].error is None), default=None)
    return [turn for number, turn in enumerate(dialogue.turns) if number != heard]


def _step(dialogue: Dialogue, turn: Turn) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent" if turn.role == "policy" else "user", "message": turn.text}
    if turn.role == "policy" and turn.thought:
        step["reasoning_content"] = turn.thought
    if turn.role == "policy" and turn.span is not None:
        step["metrics"] = _metrics(dialogue, *turn.span)
    if results := [text for text in (turn.error, turn.observation) if text]:
        step["observation"] = {"results": [{"content": text} for text in results]}
    return step


def _metrics(dialogue: Dialogue, start: int, end: int) -> dict[str, Any]:
    """What was sampled between two places of the response, and what it was sampled from; numbers alone if the log has no tokens."""
    if not dialogue.response_ids:
        return {"completion_tokens": end - start}
    read = dialogue.prompt_ids + dialogue.response_ids[:start]
    return {
        "prompt_tokens": len(read),
        "completion_tokens": end - start,
        "prompt_token_ids": read,
        "completion_token_ids": dialogue.response_ids[start:end],
        "logprobs": dialogue.logprobs[start:end],
    }


def name(dialogue: Dialogue) -> str:
    """What tells a dialogue from all others of its log."""
    step = None if dialogue.step is None else f"step {dialogue.step}"
    return "/".join(part for part in (dialogue.run, dialogue.arm, dialogue.phase, step, dialogue.id) if part)


def title(dialogue: Dialogue) -> str:
    ended = "failed" if dialogue.reward is None else f"reward {dialogue.reward:.3f}"
    return f"{dialogue.game_id}, {ended} ({dialogue.stop_reason})"


def model(dialogue: Dialogue) -> str:
    known = (dialogue.policy.get(key) for key in ("model", "path", "name", "kind", "engine"))
    return str(next((value for value in known if value), "policy"))


def facts(dialogue: Dialogue) -> dict[str, Any]:
    """Where the dialogue came from and how it ended."""
    return {
        "environment": dialogue.environment,
        "game_id": dialogue.game_id,
        "seat": dialogue.seat,
        "seed": dialogue.seed,
        "policy": dialogue.policy,
        "partner": dialogue.partner,
        "reward": dialogue.reward,
        "stop_reason": None if dialogue.stop_reason is None else dialogue.stop_reason.value,
        "failure": dialogue.failure,
        "questions": sum(bool(turn.seeking) for turn in dialogue.turns if turn.role == "policy"),
    }
