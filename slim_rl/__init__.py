"""slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?

Importing this package imports nothing else. Each name below is imported from its module at first use, and only `train` and
`engine` need torch, when they are called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slim_rl.analysis import analyze as analyze
    from slim_rl.backends import train as train
    from slim_rl.config import Section as Section
    from slim_rl.config import load_config as load_config
    from slim_rl.dialogue.dealing import load_rows as load_rows
    from slim_rl.dialogue.log import DialogueLog as DialogueLog
    from slim_rl.dialogue.log import read_log as read_log
    from slim_rl.dialogue.measures import measures as measures
    from slim_rl.dialogue.partner import PartnerFailure as PartnerFailure
    from slim_rl.dialogue.record import Dialogue as Dialogue
    from slim_rl.dialogue.record import Turn as Turn
    from slim_rl.dialogue.training_reward import StepRewards as StepRewards
    from slim_rl.dialogue.training_reward import TrainingReward as TrainingReward
    from slim_rl.dialogue.worker import RolloutWorker as RolloutWorker
    from slim_rl.environment import BaseEnvironment as BaseEnvironment
    from slim_rl.environment import Board as Board
    from slim_rl.environment import View as View
    from slim_rl.errors import DataError as DataError
    from slim_rl.errors import SlimError as SlimError
    from slim_rl.frontier import Frontier as Frontier
    from slim_rl.games.matching.demonstrations import QuestioningPlayer as QuestioningPlayer
    from slim_rl.games.matching.reading.reader import classify as classify
    from slim_rl.measured import Curriculum as Curriculum
    from slim_rl.measured import Gain as Gain
    from slim_rl.measured import Lesson as Lesson
    from slim_rl.measured import MeasuredEnvironment as MeasuredEnvironment
    from slim_rl.measured import ScriptedPlayer as ScriptedPlayer
    from slim_rl.measured import rank as rank
    from slim_rl.policies.engine import engine as engine
    from slim_rl.seeds import seed_of as seed_of
    from slim_rl.session import Games as Games

__version__ = "0.2.0"
_MODULE_OF = {  # the imports above say the same to type checkers
    "BaseEnvironment": "environment",
    "Board": "environment",
    "Curriculum": "measured",
    "DataError": "errors",
    "Dialogue": "dialogue.record",
    "DialogueLog": "dialogue.log",
    "Frontier": "frontier",
    "Gain": "measured",
    "Games": "session",
    "StepRewards": "dialogue.training_reward",
    "Lesson": "measured",
    "MeasuredEnvironment": "measured",
    "PartnerFailure": "dialogue.partner",
    "TrainingReward": "dialogue.training_reward",
    "QuestioningPlayer": "games.matching.demonstrations",
    "RolloutWorker": "dialogue.worker",
    "ScriptedPlayer": "measured",
    "Section": "config",
    "SlimError": "errors",
    "Turn": "dialogue.record",
    "View": "environment",
    "analyze": "analysis",
    "classify": "games.matching.reading.reader",
    "engine": "policies.engine",
    "load_config": "config",
    "load_rows": "dialogue.dealing",
    "measures": "dialogue.measures",
    "rank": "measured",
    "read_log": "dialogue.log",
    "seed_of": "seeds",
    "train": "backends",
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # not looked up again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
