"""`python -m slim_rl` is `slim-rl`."""

import sys
from pathlib import Path

# `python -m` looks for modules in the working folder first, where a user's yaml.py may be
if not sys.flags.safe_path and sys.path[:1] == [str(Path.cwd())]:
    del sys.path[0]

from slim_rl.cli import main

main()
