"""slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?

Importing this package imports nothing else, and no name below needs torch. A name is imported from its module when it is first used;
torch, transformers, trl, slime, verl and openai are imported only by the modules that need them, which are in ``policies``,
``backends``, ``warmstart``, ``adapters`` and ``partners``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slim_rl.adapters.session import Games
    from slim_rl.analysis import analyze
    from slim_rl.config import load_config
    from slim_rl.dialogue.dealing import load_rows
    from slim_rl.dialogue.log import DialogueLog, read_log
    from slim_rl.dialogue.loop import Speaker
    from slim_rl.dialogue.measures import measures
    from slim_rl.dialogue.partner import Reply
    from slim_rl.dialogue.record import Dialogue
    from slim_rl.dialogue.worker import RolloutWorker
    from slim_rl.environment import BaseEnvironment, View
    from slim_rl.errors import SlimError
    from slim_rl.games.matching.demonstrations import QuestioningPlayer
    from slim_rl.games.matching.questions.classify import classify

__version__ = "0.1.0"
__all__ = [
    "BaseEnvironment",
    "Dialogue",
    "DialogueLog",
    "Games",
    "QuestioningPlayer",
    "Reply",
    "RolloutWorker",
    "SlimError",
    "Speaker",
    "View",
    "analyze",
    "classify",
    "load_config",
    "load_rows",
    "measures",
    "read_log",
]
_MODULES = {  # module -> the names it has; the imports above say the same to type checkers
    "adapters.session": ("Games",),
    "analysis": ("analyze",),
    "config": ("load_config",),
    "dialogue.dealing": ("load_rows",),
    "dialogue.log": ("DialogueLog", "read_log"),
    "dialogue.loop": ("Speaker",),
    "dialogue.measures": ("measures",),
    "dialogue.partner": ("Reply",),
    "dialogue.record": ("Dialogue",),
    "dialogue.worker": ("RolloutWorker",),
    "environment": ("BaseEnvironment", "View"),
    "errors": ("SlimError",),
    "games.matching.demonstrations": ("QuestioningPlayer",),
    "games.matching.questions.classify": ("classify",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
