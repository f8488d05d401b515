"""Form of a log line, checked once when a line is read (`check_form`), on which every reader relies.

Keys that are not named here may hold anything; old lines lack some.
"""

from __future__ import annotations

from typing import Annotated, Any, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

Number = Annotated[float, Field(ge=-1e12, le=1e12)]  # sums of larger ones overflow
Count = Annotated[int, Field(ge=0, le=10**7)]
Name = str | int
Pairs = list[list[int | str]] | None
_STRICT = ConfigDict(strict=True, extra="allow")  # a truth value is no number, a number no text


class _Message(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    role: Required[str]
    content: Required[str]


class _Usage(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    cost_usd: Number | None


class _Turn(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    seat: Required[int]
    role: Required[str]
    text: Required[str]
    action: dict[str, Any] | None
    error: str | None
    thought: str | None
    span: Annotated[list[Count], Field(min_length=2, max_length=2)] | None
    seconds: Number
    usage: _Usage | None
    forced: bool
    belief: Number | None
    questions: list[str] | None
    seeking: bool | None
    pairs: Pairs
    learnable: Pairs
    informative: Pairs
    volunteered: Pairs
    redundant: Pairs
    stated: Pairs
    named_in_rejection: Pairs
    malformed: bool | None
    proposes: bool | None
    answered: bool | None
    value: Number | None
    question_value: Number | None
    gain: Number | None
    regret: Number | None
    question_rank: Number | None
    unknown: Count | None
    state_value: Number | None
    best_known: Number | None


class _Tokens(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    prompt: Required[Count]
    response: Required[Count]
    policy: Required[Count]


class _Line(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    id: Required[Name]
    game_id: Required[Name]
    seat: Required[Annotated[int, Field(ge=0, le=1)]]
    seed: Required[Number | None]
    game_state: Required[dict[str, Any]]
    policy: Required[dict[str, Any]]
    partner: Required[dict[str, Any]]
    environment: str
    run: str
    arm: str
    step: Annotated[float, Field(ge=0, le=10**9)] | None
    phase: str
    group: Name | None
    prompt: list[_Message]
    turns: Required[list[_Turn]]
    reward: Number | None
    stop_reason: str | None
    failure: str | None
    seconds: Number
    price: Number | None
    tokens: _Tokens | None
    columns: dict[str, Any]
    annotator_version: int | None
    settings: dict[str, Any]
    prompt_ids: list[int]
    response_ids: list[int]
    loss_mask: list[int]
    logprobs: list[Number]


_LINE = TypeAdapter(_Line)


def check_form(data: Any) -> None:
    """Checks the data of a line. Raises ValueError with a sentence that names the key and its value."""
    try:
        _LINE.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if part not in ("str", "int"))  # names of a union's members
        if first["type"] == "missing":
            raise ValueError(f"it has no {key}") from None
        raise ValueError(f"its {key or 'data'} is {str(first['input'])[:80]}") from None
