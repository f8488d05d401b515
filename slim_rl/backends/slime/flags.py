"""Are these flags slime's? slime parses a command line several times over, each parser ignoring what it does not know, so that a
misspelt flag is silently lost. Here slime's own parsers run on the flags, and what none of them knows is an error.

    python -m slim_rl.backends.slime.flags --lr 1e-6 …
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from slim_rl.backends import say


def known_flags(words: Sequence[str]) -> set[str]:
    """Every flag of every parser that slime runs over the command line `words`.

    Raises:
        ImportError: slime, Megatron or SGLang is not installed.
        SystemExit: a parser refused a value, as it will when training starts.
    """
    known: set[str] = set()
    parse = argparse.ArgumentParser.parse_known_args

    def remembering(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is None:  # a parser of the command line, not one that an import runs for itself
            known.update(self._option_string_actions)
        return parse(self, args, namespace)

    argv, sys.argv = sys.argv, ["train.py", *words]
    argparse.ArgumentParser.parse_known_args = remembering  # type: ignore[method-assign]
    try:
        from slime.utils.arguments import parse_args

        parse_args()
    finally:
        sys.argv = argv
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
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


def main() -> int:
    """Checks the command line. Exit code 1 if a flag is unknown or repeated."""
    words = sys.argv[1:]
    found = complaints(words, known_flags(words))
    for sentence in found:
        say(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
