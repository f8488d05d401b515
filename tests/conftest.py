"""What every room's tests share."""

import gc
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes.upstream import NO_SLIME
from tests.made import blank_figures, game, make_dialogue
from tests.paths import HUMAN

__all__ = ["game", "make_dialogue"]  # fixtures for every folder

settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
settings.load_profile("any machine")

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same tests on every machine
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

# The machine's certificates: reading them takes every client 30 ms, and no test connects by TLS.
ssl.SSLContext.load_verify_locations = lambda *_: None  # type: ignore[method-assign]
gc.set_threshold(50_000)
gc.disable()  # torch, verl and the rest are millions of objects that stay: going through them again and again costs as much as their import


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Nor is what is there by then gone through in the tests of another file."""
    yield
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if skipped := sum(NO_SLIME in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(f"{skipped} tests skipped: {NO_SLIME}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: a core that began one of them last would be waited for by the other. Forks come before Ray's threads."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("processes", "verl", "timeout")])


@pytest.fixture(scope="session")
def dialop_human() -> Path:
    """The folder of recorded human games, where it lies beside the project."""
    folder = HUMAN
    if not folder.exists():
        pytest.skip("the recorded human games are not beside the project")
    return folder


@pytest.fixture(scope="session")
def tokenizer():  # type: ignore[no-untyped-def]
    """A small ChatML tokenizer, trained on the spot."""
    pytest.importorskip("transformers")
    from slim_rl.lab.warmstart.tokenizer import train_tokenizer

    corpus = [
        "[message] What is Ava Li on BLEU?",
        "[propose]\nBLEU: Ava Li",
        "[message] Ava Li on BLEU: 62.",
        "[accept]",
    ]
    return train_tokenizer(corpus * 4, vocab_size=400)


@pytest.fixture(scope="session")
def tokenizer_dir(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:  # type: ignore[no-untyped-def]
    """Where that tokenizer is saved."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def unprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of something else, on logs like those of which `analysed` and the page of an experiment have figures printed."""
    blank_figures(monkeypatch)
