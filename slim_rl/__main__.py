"""`python -m slim_rl` is `slim-rl`."""

from slim_rl.cli import main

main()
