"""Reference pages that are generated from the code, and configs/matching.yaml.

PYTHONPATH=tools python -m reference_pages     writes them, in a checkout
"""

from reference_pages import commands, config, metrics

PAGES = {
    "docs/reference/config.md": config.page,
    "docs/reference/cli.md": commands.page,
    "docs/reference/metrics.md": metrics.page,
    "configs/matching.yaml": config.recipe,
}
