"""scripts/run_matching.sh and a partner that cannot be made: it is said before anything is started or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from slim_rl.config import load_config
from tests.fakes.cluster import Cluster
from tests.scripts.matching_setup import cluster, launch, model, print_flags, small

__all__ = ["cluster", "model", "small"]  # fixtures

ELSEWHERE = {"RAY_ADDRESS": "http://head:8265", "OPENAI_API_KEY": ""}
NO_KEY = "No key for https://api.openai.com/v1. Set the environment variable OPENAI_API_KEY"
NO_CASSETTE = ["partner.openai.cassette=none.sqlite", "partner.openai.cassette_mode=replay"]


@pytest.mark.parametrize(
    ("kind", "changes", "variables", "says"),
    [
        ("openai", [], {"OPENAI_API_KEY": ""}, NO_KEY),
        (
            "openai",
            ["partner.openai.prompt=none.md"],
            {"OPENAI_API_KEY": "sk-x"},
            "prompt {folder}/none.md: No such file",
        ),
        ("openai", NO_CASSETTE, {}, "The cassette {folder}/none.sqlite does not exist"),
        ("openai", NO_CASSETTE, ELSEWHERE, "The cassette {folder}/none.sqlite does not exist"),
        ("yoked", ["partner.args.replay=none"], {}, "There is no dialogue log {folder}/none"),
    ],
)
def test_partner_problems_stop_the_launch_before_costs(
    cluster: Cluster, model: Path, small: Path, kind: str, changes: list[str], variables: dict[str, str], says: str
) -> None:
    words = [f"--set={change}" for change in (*changes, f"partner.kind={kind}")]
    run = cluster.folder / "run"
    done = print_flags(cluster, *words, MODEL=model, CONFIG=small, dry=False, **variables)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert says.format(folder=cluster.folder) in done.stderr.splitlines()[-1]
    assert cluster.calls == [] and not run.exists()


def test_on_another_cluster_the_key_may_be_its_own(cluster: Cluster, model: Path, small: Path) -> None:
    words = ["--set", "partner.openai.cassette=answers.sqlite", "--set", "partner.kind=openai"]
    run = cluster.folder / "run"
    done = launch(cluster, *words, MODEL=model, CONFIG=small, SAVE_DIR=run, **ELSEWHERE)
    assert done.returncode == 0, done.stderr
    partner = load_config(run / "config.yaml").partner
    assert partner.openai.base_url is None
    # its workers start in another folder
    assert partner.openai.cassette == cluster.folder / "answers.sqlite"
