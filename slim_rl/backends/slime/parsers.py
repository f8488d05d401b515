"""slime's own parsers over a command line: which flags they know, and what is wrong with those that are given.

slime parses a command line several times over, each parser ignoring what it does not know.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from slim_rl.backends import say


@contextmanager
def flags_noted() -> Iterator[set[str]]:
    """Every flag of every parser that runs over the command line meanwhile."""
    known: set[str] = set()
    parse = argparse.ArgumentParser.parse_known_args

    def remembering(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is None:  # a parser of the command line, not one that an import runs for itself
            known.update(self._option_string_actions)
        return parse(self, args, namespace)

    argparse.ArgumentParser.parse_known_args = remembering  # type: ignore[method-assign]
    try:
        yield known
    finally:
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]


def known_flags(words: Sequence[str]) -> set[str]:
    """Every flag of every parser that slime runs over the command line `words`.

    Raises:
        ImportError: slime, Megatron or SGLang is not installed.
        SystemExit: a parser refused a value, as it will when training starts.
    """
    argv, sys.argv = sys.argv, ["train.py", *words]
    try:
        with flags_noted() as known:
            from slime.utils.arguments import parse_args

            parse_args()
    finally:
        sys.argv = argv
    return known


def complaints(words: Sequence[str], known: set[str]) -> list[str]:
    """One sentence for each flag of `words` that is unknown, or given twice."""
    flags = Counter(word.partition("=")[0] for word in words if word.startswith("--"))
    found = []
    for flag, times in flags.items():
        if flag not in known:
            near = difflib.get_close_matches(flag, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"slime has no flag {flag} and would ignore it{hint}")
        elif times > 1 and flag != "--rollout-sample-hook-path":  # the one flag that is meant to be repeated
            found.append(f"{flag} is given {times} times; slime takes the last")
    return found


def refused(words: Sequence[str], known: set[str]) -> bool:
    """Whether there is something to complain of, which it says."""
    found = complaints(words, known)
    for sentence in found:
        say(sentence)
    return bool(found)
