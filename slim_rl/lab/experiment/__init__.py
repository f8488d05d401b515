"""An experiment: its manifest and contrasts, their results, and its page; `TEXTS`: method and captions of the page."""

from pathlib import Path
from typing import Any

from slim_rl.config import read_yaml

TEXTS: dict[str, Any] = read_yaml(Path(__file__).with_name("texts.yaml"))
