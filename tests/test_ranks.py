"""Further processes of one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from slim_rl import ranks
from slim_rl.errors import ConfigError, SlimError
from slim_rl.ranks import joined_by, own_rank, run_size
from tests.paths import ROOT


def test_alone_nothing_is_started() -> None:
    with joined_by(1, ["nothing"]):
        assert "RANK" not in os.environ


@pytest.mark.parametrize(("variable", "read"), [("RANK", own_rank), ("WORLD_SIZE", run_size)])
def test_an_environment_that_says_no_number_is_named(
    variable: str, read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert read() == (variable == "WORLD_SIZE")
    for wrong in ("x", "", "-1"):
        monkeypatch.setenv(variable, wrong)
        with pytest.raises(ConfigError, match=rf"{variable}='{wrong}' in the environment"):
            read()


@pytest.mark.processes
def test_other_process_gets_its_rank_and_leaves_no_trace() -> None:
    with joined_by(2, ["--version"]):
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "2")
        with joined_by(2, ["no further ones are started by one that is joined"]):
            pass
    assert "RANK" not in os.environ


@pytest.mark.processes
def test_a_process_slow_to_end_does_not_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_TIMEOUT", 0.5)
    with joined_by(2, ["lab", "incentives", "matching_offline", "--num-games", "1000000"]):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert children and not [child for child in children if Path("/proc", child).exists()], "it is ended"


@pytest.mark.processes
def test_an_error_names_the_process_that_caused_it() -> None:
    def run() -> None:
        with joined_by(2, ["train", "nowhere.yaml"]):
            import time

            time.sleep(8)
            raise RuntimeError("connection closed by peer")

    with pytest.raises(SlimError, match=r"Process 1 of this run stopped: .*nowhere\.yaml"):
        run()


@pytest.mark.processes
def test_a_process_that_waits_for_a_broken_one_ends_too() -> None:
    script = """
        import time
        from slim_rl import ranks
        ranks._NOTICED = 0.1
        with ranks.joined_by(2, ["train", "nowhere.yaml"]):
            time.sleep(100)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1 and "Process 1 of this run stopped" in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_others_too(number: signal.Signals) -> None:
    """Left behind, one that plays its share of held-out games would go on with it, and with what their partner costs."""
    script = """
        import os, time
        from slim_rl import ranks
        with ranks.joined_by(2, ["lab", "incentives", "matching_offline", "--num-games", "1000000"]):
            print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
            time.sleep(100)
    """
    command, environment = [sys.executable, "-c", textwrap.dedent(script)], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as first:
        assert first.stdout is not None
        other = Path("/proc", first.stdout.readline().strip())
        assert other.exists()
        first.send_signal(number)
        assert first.wait(60) == 128 + signal.SIGTERM
    assert not other.exists()
