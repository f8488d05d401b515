"""The chat partner: what it sends, what it takes for an answer, what it says of itself."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.roster import Roster
from slim_rl.partners.openai_chat import OpenAIPartner
from tests.dialogue.players import Script
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import GAME, GOOD_PLAN, QUESTION, partner_config, partner_of, view_after


async def test_answers_and_counts_what_it_took(server: OpenAIServer) -> None:
    reply = await partner_of(server).act(view_after(QUESTION))
    assert reply.text == "[message] Ava Li on BLEU: 60."
    assert reply.usage is not None
    assert reply.usage.calls == 1 and reply.usage.retries == reply.usage.malformed == 0
    assert reply.usage.input_tokens > 500 and reply.usage.output_tokens > 0
    assert reply.usage.model == server.model
    expected = reply.usage.input_tokens * 2e-6 + reply.usage.output_tokens * 8e-6
    assert reply.usage.cost_usd == pytest.approx(expected)


async def test_sends_rules_table_and_dialogue_as_chat_messages(server: OpenAIServer) -> None:
    view = view_after(QUESTION, "[message] Ava Li on BLEU: 60.", "[message] And Daniel on BLEU?")
    await partner_of(server, temperature=0.5, extra={"top_k": 3}).act(view)
    (request,) = server.requests
    system, opening, own, last = request["messages"]
    assert view.rules in system["content"] and "shy" in system["content"]
    assert opening == {"role": "user", "content": f"{view.state}\n\n> {QUESTION}"}
    assert own == {"role": "assistant", "content": "[message] Ava Li on BLEU: 60."}
    assert last == {"role": "user", "content": "> [message] And Daniel on BLEU?"}
    assert {key: request[key] for key in ("temperature", "top_k", "max_tokens", "seed")} == {
        "temperature": 0.5,
        "top_k": 3,
        "max_tokens": 300,
        "seed": 7,
    }


async def test_each_request_begins_with_the_whole_one_before(server: OpenAIServer) -> None:
    said = [
        QUESTION,
        "hm",
        "[message] Ava Li on BLEU: 60.",
        GOOD_PLAN,
        "[reject] I doubt it.",
        "[message] Why?",
        "[message] Ah.",
    ]
    partner = partner_of(server)
    requests = [partner.messages(view_after(*said[:n])) for n in range(1, len(said) + 1)]
    for before, after in itertools.pairwise(requests):
        assert _flat(after).startswith(_flat(before))
    assert "Error:" in _flat(requests[-1])


def _flat(messages: list[dict[str, str]]) -> str:
    return "\n\n".join(f"<{m['role']}>{m['content']}" for m in messages)


async def test_all_games_share_a_beginning_long_enough_to_be_cached(server: OpenAIServer) -> None:
    partner = partner_of(server)
    usages = [(await partner.act(view_after(QUESTION, seed=seed))).usage for seed in range(2)]
    assert [usage is not None and usage.cached_tokens >= 1024 for usage in usages] == [False, True]


async def test_opens_the_game_when_it_must(server: OpenAIServer) -> None:
    server.answer = lambda body: "[message] Hello."
    view = view_after(seat=0)
    assert (await partner_of(server).act(view)).text == "[message] Hello."
    assert [m["role"] for m in server.requests[0]["messages"]] == ["system", "user"]


async def test_a_proposal_is_noted_with_its_worth(server: OpenAIServer) -> None:
    told = "[message] Ava Li on Electra is 80."  # which does not count
    history = (told, "[message] I see.", GOOD_PLAN)
    accepted = partner_of(server).messages(view_after(*history))[-1]["content"]
    assert "[accept] or [reject]" in accepted and "worth 90% of your best plan, so you accept it" in accepted
    assert "Daniel Nguyen on Electra" not in accepted


@pytest.mark.parametrize(
    ("said", "bad", "good", "complaint"),
    [
        ((QUESTION, "[message] 60.", QUESTION), "It is 60.", "[message] It is 60.", "Begin with a tag"),
        ((QUESTION,), "[say] 60.", "[message] 60.", "Begin with a tag"),
        ((QUESTION,), "[accept]", "[message] 60.", "There is no proposal to accept"),
        ((QUESTION,), GOOD_PLAN, "[message] 60.", "You do not make proposals"),
        ((QUESTION,), "[message] 60. [message] 70.", "[message] 60.", "One action at a time"),
        ((QUESTION,), "", "[message] 60.", "Your reply was empty"),
        ((GOOD_PLAN,), "[message] Nice.", "[accept]", "A proposal is waiting"),
        ((GOOD_PLAN,), "[propose]\nBLEU: Daniel\nElectra: Ava", "[reject] I doubt it.", "A proposal is waiting"),
    ],
)
async def test_a_malformed_reply_is_asked_again_with_the_error(
    server: OpenAIServer, said: tuple[str, ...], bad: str, good: str, complaint: str
) -> None:
    server.script.extend([Step(text=bad), Step(text=good)])  # type: ignore[attr-defined]
    reply = await partner_of(server).act(view_after(*said))
    assert reply.text == good
    assert reply.usage is not None and reply.usage.malformed == 1 and reply.usage.calls == 2
    first, second = (request["messages"] for request in server.requests)
    assert _flat(second).startswith(_flat(first))
    assert second[-1]["role"] == "user" and complaint in second[-1]["content"]
    assert all(message["content"] for message in second)


async def test_too_many_malformed_replies_end_the_game(server: OpenAIServer) -> None:
    server.answer = lambda body: "[no] tag"
    with pytest.raises(PartnerFailure, match=r"3 malformed replies in a row.*Begin with a tag") as failure:
        await partner_of(server, malformed_retries=2).act(view_after(QUESTION))
    assert failure.value.reason is StopReason.PARTNER_ERRORS
    assert len(server.requests) == 3


async def test_plays_a_game_of_another_kind(server: OpenAIServer) -> None:
    server.answer = lambda body: "anything at all"
    view = View(0, "Say something.", "Begin.", (Utterance(1, "[propose] hello"),), None, 0)
    partner = OpenAIPartner(partner_config(server.url).openai)
    assert (await partner.act(view)).text == "anything at all"
    assert server.requests[0]["messages"][-1]["content"] == "Begin.\n\n> [propose] hello"


async def test_a_whole_dialogue_keeps_identity_usage_and_reward(server: OpenAIServer, tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    partner = partner_of(server)
    dialogue = await play_dialogue(
        MatchingEnv(),
        Script(chat, [QUESTION, GOOD_PLAN]),
        partner,
        chat,
        Limits(turn_tokens=2000),
        game_state=GAME,
        id="d",
        seed=5,
    )
    assert dialogue.stop_reason is StopReason.AGREED and dialogue.reward == pytest.approx(0.9)
    assert [turn.text for turn in dialogue.turns if turn.role == "partner"] == [
        "[message] Ava Li on BLEU: 60.",
        "[accept]",
    ]
    costs = [turn.usage.cost_usd for turn in dialogue.turns if turn.usage]
    assert len(costs) == 2 and sum(costs) == pytest.approx(partner.endpoint.spend.total.cost_usd)
    assert dialogue.turns[1].usage is not None and dialogue.turns[1].usage.model == server.model
    line = json.loads(json.dumps(dialogue.to_dict()))
    assert Dialogue.from_dict(line).partner == partner.identity


def test_identity_tells_model_parameters_and_prompt() -> None:
    partner = MatchingChatPartner(partner_config("http://localhost:1/v1", temperature=0.3).openai)
    assert not Roster.default().find(partner.prompt), "a model answered from an example that named the game's own"
    identity = partner.identity
    assert identity["kind"] == "openai" and identity["request"]["temperature"] == 0.3
    assert identity["request"]["max_tokens"] == 300 and identity["prompt_version"] == "4"
    assert len(identity["prompt_sha256"]) == 64
    assert identity["base_url"] == "http://localhost:1/v1"


def test_identity_changes_with_the_rules(tmp_path: Any) -> None:
    own = tmp_path / "rules.md"
    own.write_text("<!-- version: mine -->\nTell everything. Accept from {accept_percent}%.", encoding="utf-8")
    base = partner_config("http://localhost:1/v1").openai
    partners = [
        MatchingChatPartner(base),
        MatchingChatPartner(base, accept_fraction=0.5),
        MatchingChatPartner(partner_config("http://localhost:1/v1", prompt=own).openai),
    ]
    assert len({partner.identity["prompt_sha256"] for partner in partners}) == 3
    assert (
        partners[2].prompt == "Tell everything. Accept from 75%." and partners[2].identity["prompt_version"] == "mine"
    )


def test_a_missing_prompt_is_said() -> None:
    with pytest.raises(ConfigError, match=r"partner's prompt nowhere.md"):
        MatchingChatPartner(partner_config("http://localhost:1/v1", prompt="nowhere.md").openai)


def test_partners_configured_alike_share_one_endpoint() -> None:
    config = partner_config("http://localhost:1/v1")
    assert MatchingChatPartner.from_config(config).endpoint is MatchingChatPartner.from_config(config).endpoint
    other = partner_config("http://localhost:2/v1")
    assert MatchingChatPartner.from_config(config).endpoint is not MatchingChatPartner.from_config(other).endpoint


async def test_abandoned_endpoint_is_tried_by_the_next_run() -> None:
    async with OpenAIServer() as server:
        config = partner_config(server.url)
        first = MatchingChatPartner.from_config(config)
        server.meets = lambda body: Step("status", status=401)
        with pytest.raises(PartnerFailure):
            await first.act(view_after(QUESTION))
        assert first.stopped
        server.meets = lambda body: None  # the key is put right
        again = MatchingChatPartner.from_config(config)
        assert again.stopped is None and (await again.act(view_after(QUESTION))).text
        assert MatchingChatPartner.from_config(config).endpoint is again.endpoint
