"""Writes the pages into the checkout that the command runs in."""

from pathlib import Path

from reference_pages import PAGES
from slim_rl.files import write_atomically

for path, page in PAGES.items():
    write_atomically(Path(path), page())
