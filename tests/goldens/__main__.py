"""Writes goldens anew: those that are named, or all."""

import sys

from tests.goldens import NAMES, write

for name in sys.argv[1:] or NAMES:
    print(write(name))
