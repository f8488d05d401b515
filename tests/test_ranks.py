"""Further processes of one command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slim_rl.errors import ConfigError
from slim_rl.ranks import own_rank, run_size, start_together


def test_alone_or_with_a_rank_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start_together(1, ["nothing"])
    monkeypatch.setenv("RANK", "0")
    start_together(2, ["nothing"])


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


@pytest.mark.parametrize("left", ["WORLD_SIZE", "RANK", "LOCAL_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_run_size_with_a_launchers_leftover_names_it(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(left, "8")
    with pytest.raises(ConfigError, match=rf"{left}=8 in the environment .*env -u {left}"):
        run_size()
    for name, value in zip(("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"), "018h", strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    assert run_size() == 8, "torchrun's own"
