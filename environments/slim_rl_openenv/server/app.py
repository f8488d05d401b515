"""The server that openenv.yaml names. Environment variables say which games it offers:

SLIM_RL_CONFIG   a config's path; without it game.yaml beside this file
SLIM_RL_PARTNER  who sits opposite, in place of the config's partner.kind
SLIM_RL_SPLIT    train (without it) or eval games
SLIM_RL_LOG      a file that each finished dialogue is appended to; then run one process only
"""

import argparse
import os
from pathlib import Path

import uvicorn
from slim_rl_openenv import make_app

from slim_rl.session import Games

_given = os.environ.get
_config = _given("SLIM_RL_CONFIG") or Path(__file__).with_name("game.yaml")
app = make_app(
    Games(_config, partner=_given("SLIM_RL_PARTNER"), log=_given("SLIM_RL_LOG"), scope="openenv"),
    _given("SLIM_RL_SPLIT") or "train",
)


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(app, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
