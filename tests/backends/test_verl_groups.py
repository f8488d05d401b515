"""A prompt group knows all its sessions before the first of them has ended, and how many were played once all have."""

from __future__ import annotations

import asyncio

import pytest

from slim_rl.backends.verl.groups import Groups


async def session(groups: Groups, uid: str, played: bool, pauses: int = 0) -> tuple[int, int]:
    group = await groups.enter(uid)
    for _ in range(pauses):
        await asyncio.sleep(0)
    group.leave(played)
    await group.complete.wait()
    return group.started, group.played


@pytest.mark.parametrize("pauses", [(0, 0, 0), (5, 0, 1)], ids=["at once", "in their own time"])
async def test_every_session_learns_how_many_were_played(pauses: tuple[int, ...]) -> None:
    groups = Groups()
    sessions = [session(groups, "a", played, p) for played, p in zip((True, False, True), pauses, strict=True)]
    assert await asyncio.gather(*sessions, session(groups, "b", False)) == [(3, 2)] * 3 + [(1, 0)]


async def test_a_uid_used_again_is_a_new_group() -> None:
    groups = Groups()
    assert await session(groups, "a", True) == (1, 1)
    assert await session(groups, "a", False) == (1, 0)
