"""docs/reference/slime-hook.md and the README against slime itself: its parsers take the flags, its loader finds the dotted paths, and
the table of `Sample` names what the hook fills.
"""

import copy
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.sglang_server import Faults
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

from tests.backends.slime_setup import Sample, make_args, make_group, play_group, run, serve  # isort: skip  (skips without slime)

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
    from slim_rl import rollout

    assert {f"slim_rl.rollout.{name}" for name in vars(rollout) if name[0] != "_"} <= set(snippet(PAGE))


@pytest.mark.parametrize(
    ("config", "more", "error"),
    [
        ({}, {}, 0.0),
        ({"partner": {"kind": "self"}}, {}, 0.0),
        ({}, {"rollout_top_p": 0.9, "use_rollout_routing_replay": True}, 0.0),
        ({"slime": {"engine_retry_seconds": 0.1}}, {}, 1.0),
    ],
)
def test_every_field_that_changes_is_in_the_table(tokenizer, tokenizer_dir, tmp_path, config, more, error) -> None:
    table = PAGE.read_text(encoding="utf-8").split("| field of `Sample` |")[1].split("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    (fresh,) = group = make_group(1)
    fresh.session_id = None
    before = copy.deepcopy(vars(fresh))
    with serve(tokenizer, faults=Faults(error=error)) as server:
        args = make_args(tokenizer_dir, server.port, tmp_path, config, **more)
        (played,) = run(args, play_group(args, group))
    samples = played if isinstance(played, list) else [played]
    changed = {name for each in samples for name, value in vars(each).items() if str(value) != str(before.get(name))}
    assert {"tokens", "response_length", "loss_mask", "status", "reward", "metadata", "session_id"} <= changed
    assert changed - {"trace"} <= named <= set(vars(Sample())), "slime itself adds `trace`"
