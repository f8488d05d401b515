"""Wording of English messages (wording.yaml): patterns of what a clause does, and lists of words."""

import re
from pathlib import Path
from typing import Any

from slim_rl.config.reading import read_yaml

_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_name("wording.yaml"))
MAY_REPEAT, BARE = (frozenset(_TABLE[name].split()) for name in ("may_repeat", "bare"))
SPELLINGS: dict[str, str] = _TABLE["spellings"]


def _expanded(name: str) -> str:
    """Returns a pattern as a regular expression, the patterns that it names written out."""
    forms = _TABLE["patterns"][name]
    joined = forms if isinstance(forms, str) else "|".join(forms)
    return re.sub(r"<(\w+)>", lambda inner: f"(?:{_expanded(inner[1])})", joined)


PATTERNS = {name: re.compile(_expanded(name)) for name in _TABLE["patterns"]}


def begins(name: str, text: str) -> bool:
    """Returns True if a text begins as a pattern says."""
    return PATTERNS[name].match(text) is not None


def has(name: str, text: str) -> bool:
    """Returns True if a pattern is found in a text."""
    return PATTERNS[name].search(text) is not None
