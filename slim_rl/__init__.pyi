# The public names and their modules; slim_rl/__init__.py reads them here, and so do type checkers.
from slim_rl.analysis import analyze as analyze
from slim_rl.backends import train as train
from slim_rl.config import Config as Config
from slim_rl.config import Section as Section
from slim_rl.config import load_config as load_config
from slim_rl.dialogue.games_file import load_rows as load_rows
from slim_rl.dialogue.log import DialogueLog as DialogueLog
from slim_rl.dialogue.log import read_log as read_log
from slim_rl.dialogue.measures import measures as measures
from slim_rl.dialogue.players import Partner as Partner
from slim_rl.dialogue.players import PartnerFailure as PartnerFailure
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
from slim_rl.games.matching.reading.reader import classify as classify
from slim_rl.games.matching.study.demonstrations import QuestioningPlayer as QuestioningPlayer
from slim_rl.lab.frontier import Frontier as Frontier
from slim_rl.measured import Curriculum as Curriculum
from slim_rl.measured import Gain as Gain
from slim_rl.measured import Instrument as Instrument
from slim_rl.measured import Lesson as Lesson
from slim_rl.measured import ScriptedPlayer as ScriptedPlayer
from slim_rl.measured import rank as rank
from slim_rl.seeds import seed_of as seed_of
from slim_rl.session import Games as Games

__all__: list[str]
__version__: str
