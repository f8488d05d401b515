"""Reference pages of the documentation that are generated from the code: the command line and the metrics.

PYTHONPATH=tools python -m reference_pages     writes them, in a checkout
"""

from __future__ import annotations

from reference_pages import commands, metrics

PAGES = {"docs/reference/cli.md": commands.page, "docs/reference/metrics.md": metrics.page}
