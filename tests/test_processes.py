"""Child processes end with the block that started them, and so does what they started."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from slim_rl.processes import running


def there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("killed", [False, True])
def test_a_childs_own_children_do_not_outlive_the_block(killed: bool) -> None:
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert there(grandchild)
        if killed:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 10
    while there(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is not None and not there(grandchild)


def test_a_child_that_does_not_end_is_killed() -> None:
    began = time.monotonic()
    with running(["sh", "-c", "trap '' TERM; echo; sleep 600"], 0.2, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
    assert process.poll() is not None and time.monotonic() - began < 10
