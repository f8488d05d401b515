"""The endpoint of this room's tests."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.openai_server import OpenAIServer


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as running:
        yield running
