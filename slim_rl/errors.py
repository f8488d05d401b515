"""Errors a person can fix: each carries one sentence that says what is wrong, where, and how to fix it."""


class SlimError(Exception):
    """Base of every error that is the input's fault and not the program's; the CLI prints it without a traceback."""


class ConfigError(SlimError):
    """A configuration file or override that cannot be used."""


class DataError(SlimError):
    """A games file, log or checkpoint that cannot be used."""


class RunStopped(SlimError):
    """A run that cannot go on, though what it has trained so far is good: the trainer saves that before it ends."""


class SlimWarning(UserWarning):
    """One sentence that a person should read; what they asked for continues."""
