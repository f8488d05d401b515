"""Errors a person can fix: each carries one sentence that says what is wrong, where, and how to fix it."""

import errno
from collections.abc import Iterable

_LOCAL = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "tokenizers")  # of the extra [local]
_DISK = {  # what a disk may refuse, and what to do about it
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, or choose another place"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a place that you may write to, or read"),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG), "choose another path"),
}


class SlimError(Exception):
    """Base of every error that is the input's fault and not the program's; the CLI prints it without a traceback."""


class ConfigError(SlimError):
    """A configuration file or override that cannot be used."""


class DataError(SlimError):
    """A games file, log or checkpoint that cannot be used."""


class RunStopped(SlimError):
    """A run that cannot go on, though what it has trained so far is good: the trainer saves that before it ends."""


class Diverged(SlimError):
    """A model that computes no finite numbers any more: nothing of it is to be saved."""


class SlimWarning(UserWarning):
    """One sentence that a person should read; what they asked for continues."""


def as_sentence(error: Exception) -> str | None:
    """What to say of an error, or None if it is a bug."""
    if isinstance(error, SlimError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _LOCAL:
        return f"this needs {error.name}, which is not installed: pip install 'slim-rl[local]', or in a checkout -e '.[local]'"
    if isinstance(error, OSError) and error.errno in _DISK:
        what = f"{error.filename} cannot be written or read" if error.filename else "a file cannot be written"
        return f"{what}: {error.strerror}; {_DISK[error.errno]}."
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """Of `known` what `word` was meant to be: the one that the fewest slips make of it, one in three letters at most; else nothing."""
    from rapidfuzz.distance import OSA

    slips = {other: OSA.distance(word, other) for other in known}
    near = min(slips, key=slips.__getitem__, default="")
    return near if near and slips[near] <= max(1, len(word) // 3) else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence on a word that is not known: '; did you mean train?', or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""
