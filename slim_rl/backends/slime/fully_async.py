"""Rollouts that never wait for their slowest game (ASYNC=full): games continue while the model trains.

Invariants:

    A game is trained on at most `slime.max_staleness` training steps after it started, however long it takes.
    A fixed number of steps' worth of groups (two, or one less than that bound) is in flight or waits to be trained on.

Each step starts one step's worth of new groups and returns finished ones, the oldest first. It waits for older ones only if they
would otherwise become too old. slime's own fully asynchronous rollout has one number for the groups in flight and for the samples that
its semaphore admits, so that with groups of 8 seven of eight dialogues wait. It bounds no age, applies no group filter and cannot
evaluate. This module is made of slime's parts: its event loop, which outlives a call; its data source, `generate_and_rm_group`, group
filter, and evaluation.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import MetricGatherer, call_dynamic_filter, should_drop_dynamic_filter_output
from slime.rollout.sglang_rollout import GenerateState, generate_and_rm_group, generate_rollout
from slime.utils.async_utils import run
from slime.utils.misc import load_function
from slime.utils.types import Sample

from slim_rl.backends.slime.rewards import flat
from slim_rl.backends.slime.setup import config_of

STALENESS = "staleness"  # the key of sample.metadata: training steps from a game's start to the step that trains on it

Group = list[Any]
Drop = Callable[[Group, int], bool]  # whether to leave a group that ended out, by it and the number of those in flight


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A group that was started and not yet given out.

    Attributes:
        task: plays it.
        step: the step that was being played when it started.
        passes: whether the group filter has let it pass.
    """

    task: asyncio.Task[Group]
    step: int
    passes: bool = False


@dataclass(slots=True, eq=False)
class Flow:
    """The groups in flight. It lives on one event loop.

    Attributes:
        start: takes a group from the data source and returns what plays it.
        batch: groups of a step.
        ahead: steps' worth of groups in flight, that of the step which is collected included.
        max_staleness: in steps, at least `ahead`.
        first: the first step.
        steps: the run's steps in all; None if that is not known.
        under_way: in the order they started.
        begun: groups started, less those dropped.
    """

    start: Callable[[], Coroutine[Any, Any, Group]]
    batch: int
    ahead: int
    max_staleness: int
    first: int = 0
    steps: int | None = None
    under_way: list[_UnderWay] = field(default_factory=list)
    begun: int = 0

    async def collect(self, step: int, drop: Drop) -> list[tuple[Group, int]]:
        """The next step's groups, in the order they started, each with its staleness. Raises what a game raised."""
        self._fill(step)
        while True:
            self._judge(step, drop)
            batch = [group for group in self.under_way if group.passes][: self.batch]
            if len(batch) == self.batch and self._can_wait(step, [g for g in self.under_way if g not in batch]):
                break
            playing = [group.task for group in self.under_way if not group.task.done()]
            await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
        self.under_way = [group for group in self.under_way if group not in batch]
        return [(group.task.result(), step - group.step + 1) for group in batch]

    def _can_wait(self, step: int, left: Sequence[_UnderWay]) -> bool:
        """Returns True if no remaining group becomes too old when later steps take them in the order they started.

        Once all have ended that holds: no more than `ahead` steps' worth are ever in flight.
        """
        return all(step + 1 + place // self.batch - group.step < self.max_staleness for place, group in enumerate(left))

    def _fill(self, step: int) -> None:
        """Starts groups up to those that this step and the next `ahead` - 1 need."""
        last = step + self.ahead - 1
        if self.steps is not None:
            last = max(step, min(last, self.steps - 1))  # the run's end needs no more
        while self.begun < (last - self.first + 1) * self.batch:
            self.under_way.append(_UnderWay(asyncio.create_task(self.start()), step))
            self.begun += 1

    def _judge(self, step: int, drop: Drop) -> None:
        for group in list(self.under_way):
            if group.passes or not group.task.done():
                continue
            if drop(group.task.result(), len(self.under_way)):
                self.under_way.remove(group)
                self.begun -= 1
            else:
                group.passes = True
        self._fill(step)  # in place of those dropped

    def cancel(self) -> None:
        """Calls all games off."""
        for group in self.under_way:
            group.task.cancel()
        self.under_way = []


def generate_fully_async(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """Returns a rollout, as slime's ``--rollout-function-path``. slime itself plays an evaluation, during the games in flight.

    Raises:
        SlimError: a game cannot be played as configured, or too many failed.
    """
    if evaluation:
        return generate_rollout(args, rollout_id, data_source, evaluation=True)
    return run(_rollout(args, rollout_id, data_source))


async def _rollout(args: Namespace, rollout_id: int, data_source: Any) -> RolloutFnTrainOutput:
    global _flow
    loop = asyncio.get_running_loop()
    if _flow is None or _flow[0] is not data_source or _flow[1] is not loop:
        _flow = data_source, loop, _flow_of(args, rollout_id, data_source)
    flow, dropped = _flow[2], MetricGatherer()
    try:
        groups = await flow.collect(rollout_id, _dropper(args, data_source, dropped))
    except BaseException:
        flow.cancel()
        raise
    for group, staleness in groups:
        for sample in flat(group):
            sample.metadata = {**(sample.metadata or {}), STALENESS: staleness}
    return RolloutFnTrainOutput(samples=[group for group, _ in groups], metrics=dropped.collect())


def call_off() -> None:
    """Cancels all games in flight, so that no further partner calls are billed while a stopped run is saved. Thread-safe."""
    if _flow is not None:
        _, loop, flow = _flow
        loop.call_soon_threadsafe(flow.cancel)


def _flow_of(args: Namespace, rollout_id: int, data_source: Any) -> Flow:
    state, settings = GenerateState(args), config_of(args).slime

    def play() -> Coroutine[Any, Any, Group]:
        (group,) = data_source.get_samples(1)
        return generate_and_rm_group(args, group, sampling_params=state.sampling_params.copy(), evaluation=False)  # type: ignore[no-any-return]

    return Flow(
        play,
        args.rollout_batch_size,
        settings.steps_under_way,
        settings.max_staleness,
        rollout_id,
        getattr(args, "num_rollout", None),
    )


def _dropper(args: Namespace, data_source: Any, dropped: MetricGatherer) -> Drop:
    """Returns slime's group filter. A group that slime aborted goes back to the data source."""
    path = getattr(args, "dynamic_sampling_filter_path", None)
    judge = load_function(path) if path else None

    def drop(group: Group, under_way: int) -> bool:
        if any(sample.status == Sample.Status.ABORTED for sample in flat(group)):
            if not any(isinstance(sample, list) for sample in group):
                data_source.add_samples([group])
            return True
        output = call_dynamic_filter(judge, args, group)
        if not should_drop_dynamic_filter_output(
            output, remaining_batch_size=under_way, target_data_size=args.rollout_batch_size
        ):
            return False
        dropped.on_dynamic_filter_drop(reason=output.reason)
        return True

    return drop


_flow: tuple[Any, asyncio.AbstractEventLoop, Flow] | None = None
