"""docs/reference/slime-hook.md and the README against slime itself: its parsers take the flags, its loader finds the dotted paths."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.upstream import NO_SLIME, import_slime, slimes
from tests.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "slime-hook.md"


def snippet(page: Path) -> list[str]:
    """The flags of the page's command that names the hook, and of sentences with a dotted path."""
    text = page.read_text(encoding="utf-8")
    (block,) = (each for each in re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S) if "--custom-generate" in each)
    lines = [line.strip(" \\") for line in block.splitlines() if line.strip().startswith("--")]
    lines += re.findall(r"^\| `(--\S+ slim_rl\.\S+)` \|", text, re.M)
    return [word for line in lines for word in shlex.split(line, comments=True) if word != "\\"]


@pytest.mark.parametrize("slime", slimes() or [None], ids=str)
def test_slimes_own_parsers_take_the_pages_flags(slime: Path | None) -> None:
    """In a separate process, since this one may have a stand-in for slime."""
    if slime is None:
        pytest.skip(NO_SLIME)
    required = ["--rollout-batch-size", "32"]  # the README has it in $YOUR_FLAGS
    words = [json.dumps([*snippet(page), *required]) for page in (ROOT / "README.md", PAGE)]
    path = os.pathsep.join(map(str, [ROOT, ROOT / "tools", slime]))
    command = [sys.executable, "-m", "tests.backends.slime_parsers", *words]
    found = subprocess.check_output(command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, text=True).splitlines()
    assert json.loads(found[-1]) == [[[], [True] * 4], [[], [True] * 6]]


def test_every_dotted_path_is_on_the_page() -> None:
    import_slime()
    from slim_rl import rollout

    assert {f"slim_rl.rollout.{name}" for name in rollout.__all__} <= set(snippet(PAGE))
