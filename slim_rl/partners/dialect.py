"""Request parameters that a model refuses.

They are read from its endpoint's errors, and left out or renamed for the rest of the process. A request is addressed in a cassette as the config asks for it: only what is sent differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slim_rl.config import OpenAIConfig

RENAMED = {"max_tokens": "max_completion_tokens"}
LEFT_OUT = ("temperature", "top_p", "seed")
LEARNED = (*RENAMED, *LEFT_OUT)  # what a model can do without; any other refusal is a fault of the config

# what refuses a parameter, what refuses its value, and what begins a list of others
_REFUSES = re.compile(
    r"unsupport|n[o']t support|unknown|unrecogni[sz]ed|unexpected|not (permitted|allowed|accepted|recogni[sz]ed)|"
    r"extra[_ ](inputs|fields|forbidden)|cannot find field|not a valid (field|parameter)|additional propert",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(should|must) be|(less|greater) than|at (most|least)|out of range|between|too (large|high|small|low)|invalid value",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"(?<!not )\b(supported|allowed|valid|accepted|known) (\w+ )?(parameters|arguments|fields|keys|values)\b|\b(expected|use|drop)\b",
    re.IGNORECASE,
)


class Dialect:
    """Parameters that one endpoint's model takes; `refused` has the others, in the order they were learned."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the request as the model takes it."""
        names = {name: RENAMED.get(name) if name in self.refused else name for name in body}
        return {taken: body[name] for name, taken in names.items() if taken}

    def recall(self, parameters: Iterable[str]) -> None:
        """Records parameters that the model is known to refuse."""
        self.refused += [name for name in parameters if name in LEARNED and name not in self.refused]

    def remark(self, model: str) -> str:
        """Returns a sentence on what is sent differently from the config; "" if nothing is."""
        changes = [f"{name} is sent as {RENAMED[name]}" for name in self.refused if name in RENAMED]
        if dropped := [name for name in self.refused if name in LEFT_OUT]:
            changes.append(f"{' and '.join(dropped)} {'are' if len(dropped) > 1 else 'is'} left out")
        unsure = ": its replies may differ from run to run" if {"seed", "temperature"} & set(dropped) else ""
        return f"{model} refuses some parameters: {', '.join(changes)}{unsure}." if changes else ""


def refused_parameters(error: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Returns the request's parameters that an error names, and a hint unless all of them can be learned."""
    sendable = [name for name in body if name not in ("model", "messages")]
    text, param, detail = error["message"][:20_000], error.get("param"), error.get("detail")
    places = [place for place in detail if isinstance(place, dict)] if isinstance(detail, list) else []
    if isinstance(param, str) and param in sendable:
        names = [param]
        text = f"{text} {error.get('code')}"
    elif places:
        text = " ".join(f"{place.get('msg')} {place.get('type')}" for place in places)
        steps = [step for place in places if isinstance(place.get("loc"), list) for step in place["loc"]]
        names = [name for name in sendable if name in steps]
    else:
        sentences = [one for one in re.split(r"(?<=[.!;])\s+|\n", text) if _REFUSES.search(one) or _VALUE.search(one)]
        text = " ".join(sentences)
        begins = " ".join(_OTHERS.split(sentence, maxsplit=1)[0] for sentence in sentences)
        names = [name for name in sendable if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", begins)]
    refuses = bool(_REFUSES.search(text))
    if not names or not (refuses or places or _VALUE.search(text)):
        return (), ""
    if refuses and all(name in LEARNED for name in names):
        return tuple(names), ""
    key = next((name for name, other in RENAMED.items() if other == names[0]), names[0])
    if key in OpenAIConfig.model_fields:
        return tuple(names), f"set partner.openai.{key} to a value that it takes, or to null"
    return tuple(names), f"remove {key} from partner.openai.extra"
