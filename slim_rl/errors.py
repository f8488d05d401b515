"""Errors that a person can fix: each has one sentence on what is wrong, where, and how to fix it."""

import errno
import re
from collections.abc import Iterable

_LOCAL = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "tokenizers")  # of the extra [local]
_DISK = {  # error of a disk -> how to fix it
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, or choose another place"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a place that you may write to, or read"),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG), "choose another path"),
}


class SlimError(Exception):
    """Base of all errors in the input; the CLI prints them without a traceback."""


class ConfigError(SlimError):
    """Configuration file or override that cannot be used."""


class DataError(SlimError):
    """Games file, log or checkpoint that cannot be used."""


class RunStopped(SlimError):
    """Run that cannot continue although its weights are good: the trainer saves them before it ends."""


class Diverged(SlimError):
    """Model that no longer computes finite numbers and must not be saved."""


class SlimWarning(UserWarning):
    """Warning in one sentence for a person; the program continues."""


def as_sentence(error: Exception) -> str | None:
    """Returns the sentence for an error; None if it is a bug."""
    if isinstance(error, SlimError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _LOCAL:
        return f"this needs {error.name}, which is not installed: pip install 'slim-rl[local]', or in a checkout -e '.[local]'"
    if isinstance(error, OSError) and error.errno in _DISK:
        what = f"{error.filename} cannot be written or read" if error.filename else "a file cannot be written"
        return f"{what}: {error.strerror}; {_DISK[error.errno]}."
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word nearest to `word`, with one slip per three letters at most; empty without one."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    near = process.extractOne(word, list(known), scorer=OSA.distance, score_cutoff=max(1, len(word) // 3))
    return near[0] if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence on an unknown word: '; did you mean train?', or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""


def misfit(error: Exception) -> str:
    """Returns why a call does not take its arguments, without Python's words: "'size' is not one that it takes"."""
    words = re.sub(r"^[\w.<>]+\(\) ", "", str(error))
    words = re.sub(r"^(?:got an|got some) unexpected keyword arguments? (.+)", r"\1 is not one that it takes", words)
    return re.sub(r"^missing (?:a|\d+) required .*?arguments?: (.+)", r"\1 must be given", words)
