"""The command: see `run`."""

import sys

from slim_rl.backends import RESUME_HINT
from slim_rl.commands.train import report
from slim_rl.errors import SlimError, as_sentence
from slim_rl.processes import interruptible
from slime_cpu.run import launch


def main() -> int:
    """Trains, and reports as `slim-rl train` does; an error is one sentence on stderr and exit code 1."""
    try:
        with interruptible(RESUME_HINT):
            report(launch(sys.argv[1:]))
        return 0
    except (SlimError, ModuleNotFoundError, OSError) as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        print(f"slim-rl: {sentence}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
