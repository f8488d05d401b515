"""How many GPUs this machine lends to a process."""

from __future__ import annotations

import pytest

from slim_rl.backends.gpus import count_gpus, local_processes


@pytest.mark.parametrize(
    ("visible", "number"), [("", 0), ("-1", 0), ("0", 1), ("0,1, 3", 3), ("0,-1,1", 1), ("GPU-8932f937,GPU-5a1c", 2)]
)
def test_as_many_as_cuda_would_see(visible: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == number


@pytest.mark.parametrize(("visible", "number"), [("", 2), ("0", 1), ("0,1,2", 2)])
def test_a_gpu_has_one_process_of_a_run(visible: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local_processes(2) == number
