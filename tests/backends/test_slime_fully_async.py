"""Games that go on while the model trains: how many, how old, and by slime's own rollout code where it can be imported."""

from __future__ import annotations

import asyncio
import copy
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import DataError, RunStopped
from tests.backends.slime_setup import (
    Sample,
    SingletonMeta,
    close,
    http_utils,
    make_args,
    make_group,
    serve,
    state,
)

from slime.utils.async_utils import run as on_slimes_loop  # isort: skip
from slim_rl.backends.slime import fully_async  # isort: skip
from slim_rl.backends.slime import metrics  # isort: skip
from slim_rl.backends.slime.fully_async import STALENESS, Flow  # isort: skip
from slim_rl.backends.slime.hook import RECORD  # isort: skip
from slim_rl.backends.slime.rewards import rollout_failures  # isort: skip
from slim_rl.rollout import generate_fully_async, log_rollout  # isort: skip

COUNTING = f"{__name__}.count"


@pytest.fixture(autouse=True)
def clean() -> Any:
    rollout_failures.clear()
    live.clear()
    fully_async._flow = None
    SingletonMeta._instances.clear()
    http_utils._http_client = None
    yield
    if fully_async._flow is not None:
        on_slimes_loop(calm(fully_async._flow[2]))
    on_slimes_loop(close())


async def calm(flow: Flow) -> None:
    tasks = [group.task for group in flow.under_way]
    flow.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ------------------------------------------------------------------------------------------------------------- the rule
@settings(max_examples=200, deadline=None)
@example(
    batch=2, ahead=3, spare=0, steps=4, pace=[(0, False), (6, False)], first=0
)  # quick ones must not crowd out slow ones
@given(
    batch=st.integers(1, 3),
    ahead=st.integers(1, 3),
    spare=st.integers(0, 2),
    steps=st.integers(1, 6),
    pace=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=12),
    first=st.integers(0, 3),
)
def test_no_group_is_older_than_allowed_lost_or_given_twice(batch, ahead, spare, steps, pace, first) -> None:
    max_staleness = ahead + spare
    begun: list[int] = []
    dropped: set[int] = set()

    async def play(number: int) -> list[int]:
        for _ in range(pace[number % len(pace)][0]):
            await asyncio.sleep(0)
        return [number]

    def start() -> Any:
        begun.append(len(begun))
        return play(begun[-1])

    def drop(group: list[int], under_way: int) -> bool:
        if pace[group[0] % len(pace)][1] and len(dropped) < 5:
            dropped.add(group[0])
            return True
        return False

    async def whole() -> None:
        flow = Flow(start, batch, ahead, max_staleness, first, first + steps)
        seen: list[int] = []
        for step in range(first, first + steps):
            given = await flow.collect(step, drop)
            assert len(given) == batch
            assert all(1 <= staleness <= max_staleness for _, staleness in given)
            assert len(flow.under_way) <= (ahead - 1) * batch
            seen += [number for (number,), _ in given]
            await asyncio.sleep(0)
        assert not flow.under_way, "the run's end leaves nothing unfinished"
        assert len(set(seen)) == len(seen) == steps * batch
        assert set(seen) | dropped == set(begun) and not set(seen) & dropped

    asyncio.run(whole())


async def test_what_a_game_raises_ends_the_run_at_once() -> None:
    async def play() -> list[Any]:
        raise DataError("no such game")

    with pytest.raises(DataError, match="no such game"):
        await Flow(play, 2, 2, 3).collect(0, lambda group, under_way: False)


# ------------------------------------------------------------------------------------------------------- slime's worker
live: Counter[str] = Counter()


async def count(args: Namespace, sample: Any, sampling_params: Any, evaluation: bool = False) -> Any:
    """A game that takes a moment. Counts those in play, and the most there were."""
    live["now"] += 1
    live["most"] = max(live["most"], live["now"])
    live["played"] += 1
    await asyncio.sleep(0.2)
    live["now"] -= 1
    sample.reward, sample.status, sample.response = 0.5, Sample.Status.COMPLETED, "x"
    return sample


async def dawdle(args: Namespace, sample: Any, sampling_params: Any, evaluation: bool = False) -> Any:
    """All games but those of the first step take long."""
    await asyncio.sleep(0 if sample.group_index < args.rollout_batch_size else 60)
    return await count(args, sample, sampling_params)


class Source:
    """slime's data source, as far as a rollout asks it."""

    def __init__(self, size: int, more: Any = make_group) -> None:
        self.size, self.more, self.given = size, more, 0

    def get_samples(self, number: int) -> list[list[Any]]:
        groups = []
        for _ in range(number):
            group = self.more(self.size, self.given % 12, self.given * self.size)
            for sample in group:
                sample.group_index = self.given
            groups.append(group)
            self.given += 1
        return groups

    def add_samples(self, groups: list[list[Any]]) -> None:
        raise AssertionError("nothing was called off")


def arguments(tokenizer_dir: Path, port: int, folder: Path, config: Any = None, **more: Any) -> Namespace:
    usual = {
        "custom_generate_function_path": "slim_rl.rollout.generate", "dynamic_sampling_filter_path": None, "group_rm": False,
        "rollout_global_dataset": True, "custom_rm_path": None, "rollout_sample_hook_path": None, "num_rollout": 100,
        "mask_offpolicy_in_partial_rollout": False, "update_weights_interval": 1,
    }  # fmt: skip
    return make_args(tokenizer_dir, port, folder, config, **usual | more)


def test_all_dialogues_of_the_groups_under_way_are_in_play(tokenizer_dir, tmp_path) -> None:
    args = arguments(
        tokenizer_dir, 9, tmp_path, custom_generate_function_path=COUNTING, rollout_batch_size=8, n_samples_per_prompt=8
    )
    args.sglang_server_concurrency = 2 * 8 * 8  # as the launch sets it: two steps of 8 groups of 8
    source = Source(8, more=lambda size, game, first: [Sample(index=first + i) for i in range(size)])
    for step in range(3):
        output = generate_fully_async(args, step, source)
        assert len(output.samples) == 8
    assert live["most"] == 128


def test_slimes_own_takes_the_number_for_groups_and_for_samples(tokenizer_dir, tmp_path) -> None:
    """Why there is a rollout function of our own. Should this fail one day, slime's may do."""
    from slime.rollout import fully_async_rollout

    args = arguments(
        tokenizer_dir, 9, tmp_path, custom_generate_function_path=COUNTING, rollout_batch_size=8, n_samples_per_prompt=8
    )
    args.sglang_server_concurrency = 16  # two steps of 8 groups
    source = Source(8, more=lambda size, game, first: [Sample(index=first + i) for i in range(size)])
    try:
        fully_async_rollout.generate_rollout_fully_async(args, 0, source)
    finally:
        fully_async_rollout._stop_global_worker()
    assert live["most"] == 16  # of the 128 dialogues in its groups


async def breaks(args: Namespace, sample: Any, sampling_params: Any, evaluation: bool = False) -> Any:
    raise DataError("no such game")


def test_slimes_own_rollout_evaluates_nothing_and_hides_errors(tokenizer_dir, tmp_path) -> None:
    """The other gaps of slime's own: it refuses an evaluation, calls no group filter, and waits on after a game has raised."""
    from slime.rollout import fully_async_rollout as theirs

    args = arguments(tokenizer_dir, 9, tmp_path, custom_generate_function_path=f"{__name__}.breaks")
    args.dynamic_sampling_filter_path = "no.such.filter"  # loaded by nobody
    with pytest.raises(ValueError, match="evaluation"):
        theirs.generate_rollout_fully_async(args, 0, Source(4), evaluation=True)

    async def waits() -> None:
        await asyncio.wait_for(theirs._generate_rollout_async(args, 0, Source(4)), 3)

    try:
        with pytest.raises(TimeoutError):
            asyncio.run(waits())
    finally:
        theirs._stop_global_worker()
    with pytest.raises(DataError, match="no such game"):
        args.dynamic_sampling_filter_path = None
        generate_fully_async(args, 0, Source(4))


def test_games_grow_old_with_the_weights_and_the_metric_says_so(
    tokenizer, tokenizer_dir, tmp_path, monkeypatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(metrics, "log_metrics", lambda args, values, step_key: told.append(values))
    config = {"slime": {"max_staleness": 3}}
    with serve(tokenizer, delay=lambda rng: rng.choice([0.0, 0.0, 0.05])) as server:
        args = arguments(tokenizer_dir, server.port, tmp_path, config, num_rollout=5)
        http_utils.init_http_client(args)
        source, ages, mixed = Source(4), [], []
        for step in range(5):
            output = generate_fully_async(args, step, source)
            samples = [sample for group in output.samples for sample in group]
            assert {sample.status for sample in samples} == {Sample.Status.COMPLETED}
            mixed.append(sum(len(set(sample.weight_versions)) > 1 for sample in samples) / 8)
            ages += [sample.metadata[STALENESS] for sample in samples]
            for sample in samples:  # no weights older than said: those of step k are numbered k
                assert step + 1 - min(map(int, sample.weight_versions)) <= sample.metadata[STALENESS]
            log_rollout(step, args, copy.deepcopy(output.samples), output.metrics, 1.0)
            server.weight_version = str(step + 1)
    assert 2 <= max(ages) <= 3 and len(ages) == 5 * 2 * 4
    assert source.given == 10  # and no game that no step would have trained on
    assert [values["dialogue/staleness_max"] for values in told] == [max(ages[at : at + 8]) for at in range(0, 40, 8)]
    assert told[0]["dialogue/staleness_mean"] == 1.0
    assert [values["dialogue/mixed_weights"] for values in told] == mixed
    steps = Counter(line.step for line in read_log(tmp_path / "logs" / "train.jsonl"))
    assert steps == dict.fromkeys(range(5), 8)


def test_a_group_without_enough_played_games_is_replaced(tokenizer, tokenizer_dir, tmp_path) -> None:
    config = {"slime": {"engine_retry_seconds": 0.0, "min_survivors": 1.0}, "train": {"stop_failures": 1.0}}
    from tests.fakes.sglang_server import Faults

    with serve(tokenizer, faults=Faults(error=0.05)) as server:
        args = arguments(
            tokenizer_dir,
            server.port,
            tmp_path,
            config,
            dynamic_sampling_filter_path="slim_rl.rollout.keep_usable_groups",
        )
        http_utils.init_http_client(args)
        source, counts = Source(4), Counter[str]()
        for step in range(4):
            output = generate_fully_async(args, step, source)
            counts.update(output.metrics)
            assert len(output.samples) == 2
            rollout_failures.clear()
    assert source.given == 5 * 2 + counts["rollout/dynamic_filter/drop_too_few_played"] > 10


def test_a_run_that_is_stopped_plays_nothing_more(tokenizer_dir, tmp_path) -> None:
    args = arguments(tokenizer_dir, 9, tmp_path, custom_generate_function_path=f"{__name__}.dawdle")
    generate_fully_async(args, 0, Source(4))
    assert fully_async._flow is not None
    tasks = [group.task for group in fully_async._flow[2].under_way]
    assert tasks and not any(task.done() for task in tasks)
    outage = Dialogue("d", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.OUTAGE, failure="No answer.")
    with pytest.raises(RunStopped, match="No answer"):
        log_rollout(0, args, [Sample(metadata={RECORD: outage.to_dict(tokens=False)})], {}, 1.0)
    on_slimes_loop(ended(tasks))
    assert all(task.cancelled() for task in tasks)


async def ended(tasks: list[Any]) -> None:
    await asyncio.wait(tasks, timeout=5)


def test_an_evaluation_is_played_beside_the_games_under_way(tokenizer, tokenizer_dir, tmp_path) -> None:
    from slime.rollout import sglang_rollout

    with serve(tokenizer, delay=0.01) as server:
        args = arguments(tokenizer_dir, server.port, tmp_path, eval_datasets=[])
        http_utils.init_http_client(args)
        source = Source(4)
        generate_fully_async(args, 0, source)
        assert generate_fully_async(args, 0, source, evaluation=True).data == {}
        assert state(args) is sglang_rollout.GenerateState(args)
        assert len(generate_fully_async(args, 1, source).samples) == 2
