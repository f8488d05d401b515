"""Conversions of dialogues to formats of other tools, as JSON-able values.

    session_trace    session traces of the Hugging Face Hub
    trajectory       trajectories (ATIF) of Harbor
    eval_log         evaluation logs of inspect_ai

A file holds the facts of the log and nothing else: token ids or dates that the log lacks are left out. None of the tools'
packages is needed.
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
    """Returns the lines of a session trace: its header, then one message per line."""
    header = {"type": "session", "harness": HARNESS, "id": name(dialogue), "name": title(dialogue), **facts(dialogue)}
    lines = []
    for message in messages(dialogue):
        renamed = {"reasoningContent" if key == "thought" else key: value for key, value in message.items()}
        if message["role"] == "assistant":
            renamed["model"] = model(dialogue)
        lines.append({"type": "message", "message": renamed})
    return [header, *lines]


def trajectory(dialogue: Dialogue) -> dict[str, Any]:
    """Returns an ATIF trajectory. Its agent is the policy; the other seat is its user."""
    sources = {"system": "system", "assistant": "agent"}
    steps = [
        {"source": sources.get(message["role"], "user"), "message": message["content"]} for message in dialogue.prompt
    ]
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
    """Returns an inspect_ai evaluation log of dialogues of one run and phase, one sample each, scored by the game's reward."""
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
    converted = [_for_inspect(message, later=number >= opening) for number, message in enumerate(messages(dialogue))]
    answers = [message for message in converted if message["role"] == "assistant"]
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
        "messages": converted,
        "output": output,
        "metadata": facts(dialogue),
        "total_time": dialogue.seconds,
        **ending,
    }


def _for_inspect(message: dict[str, str], later: bool = False) -> dict[str, Any]:
    """Returns a message for `inspect view`, which shows all system messages first: a `later` one becomes the user's."""
    plain = {"role": message["role"], "content": message["content"]}
    if later and message["role"] == "system":
        return {"role": "user", "content": f"Refused: {message['content']}"}
    if not message.get("thought"):
        return plain
    parts = [{"type": "reasoning", "reasoning": message["thought"]}, {"type": "text", "text": message["content"]}]
    return {**plain, "content": parts}


def messages(dialogue: Dialogue) -> list[dict[str, str]]:
    """Returns a dialogue as chat messages: the policy is the assistant, and refusals of the game are the system's."""
    chat = [{"role": message["role"], "content": message["content"]} for message in dialogue.prompt]
    for turn in _after_prompt(dialogue):
        thought = {"thought": turn.thought} if turn.thought else {}
        chat.append({"role": "assistant" if turn.role == "policy" else "user", "content": turn.text, **thought})
        if turn.error:
            chat.append({"role": "system", "content": turn.error})
        if turn.observation:
            chat.append({"role": "user", "content": turn.observation})
    return chat


def _after_prompt(dialogue: Dialogue) -> list[Turn]:
    """Returns the turns without the one that ends the prompt: the other seat's last before the policy's first."""
    first = next((number for number, turn in enumerate(dialogue.turns) if turn.role == "policy"), 0)
    opening = max((number for number in range(first) if dialogue.turns[number].error is None), default=None)
    return [turn for number, turn in enumerate(dialogue.turns) if number != opening]


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
    """Returns the tokens at [start, end) of the response and their input; without tokens, their number."""
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
    """Returns a name that identifies a dialogue in its log."""
    step = None if dialogue.step is None else f"step {dialogue.step}"
    return "/".join(part for part in (dialogue.run, dialogue.arm, dialogue.phase, step, dialogue.id) if part)


def title(dialogue: Dialogue) -> str:
    """Returns a title: game, reward and stop reason."""
    ended = "failed" if dialogue.reward is None else f"reward {dialogue.reward:.3f}"
    return f"{dialogue.game_id}, {ended} ({dialogue.stop_reason})"


def model(dialogue: Dialogue) -> str:
    """Returns the policy's name, from its identity."""
    known = (dialogue.policy.get(key) for key in ("model", "path", "name", "kind", "engine"))
    return str(next((value for value in known if value), "policy"))


def facts(dialogue: Dialogue) -> dict[str, Any]:
    """Returns the dialogue's origin and end."""
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
