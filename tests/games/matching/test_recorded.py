"""Recorded games: scored as they were, made playable, and chat data with targets where people spoke."""

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow, read_rows, write_rows
from slim_rl.errors import DataError
from slim_rl.games.matching.actions import ActionError, parse_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.state import GameState
from slim_rl.games.matching.study.recorded import GO_ON, conversation, convert, encode, playable, read_record

NAMES = ("Ava Li", "Daniel Nguyen", "Sofia Patel")
ASKED = ("0 Ava on BLEU?", "1 Nine.", "0 proposes 0 1 2", "1 accepts")


def entry(text: str, names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    """Returns an entry of a log: "0 Hi.", "1 proposes 0 1 2" (the papers of the reviewers), "0 accepts" or "0 rejects"."""
    player, words = int(text[0]), text[2:]
    if words.startswith("proposes "):
        plan = [int(paper) for paper in words.split()[1:]]
        lines = (f"{('BLEU', 'Electra', 'GloVe')[p]}: {names[r]}" for r, p in enumerate(plan))
        told = "".join(f"<br/>&emsp; - {line}" for line in lines)
        ids = [[r, p] for r, p in enumerate(plan)]
        return {"type": "proposal", "player": player, "proposal": f"Proposal:{told}", "proposal_ids": ids}
    if words in ("accepts", "rejects"):
        return {"type": "proposal_response", "player": player, "response": {"accept": words == "accepts"}}
    return {"type": "message", "player": player, "message": {"data": words}}


def record(*log: str | dict[str, Any], names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    mask = [[1] * 3] * 3
    state = {"table": [[9, 1, 1], [1, 9, 1], [1, 1, 9]], "mask1": mask, "mask2": mask, "scale1": 1.0, "scale2": 2.0}
    entries = [entry(each, names) if isinstance(each, str) else each for each in log]
    return {**state, "best_assignment_reward": 27, "action_log": entries}


@pytest.fixture(scope="session")
def human_games(dialop_human: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (dialop_human / "optimization.jsonl").open(encoding="utf-8")]


def test_human_games_score_as_recorded_and_convert(human_games: list[dict[str, Any]]) -> None:
    games = [read_record(game) for game in human_games]
    scores = [played.reward * played.state.best_assignment_reward for played in games]
    assert scores == pytest.approx([game["proposal_reward"] for game in human_games])
    assert sum(played.reward for played in games) / 134 == pytest.approx(0.921, abs=0.0005)
    people = supplied = 0
    for game, played in zip(human_games, games, strict=True):
        assert [seat for seat, _ in played.actions] == [each["player"] for each in game["action_log"]]
        turns = playable(played)
        assert [turn.seat for turn in turns] == [index % 2 for index in range(len(turns))]
        for seat in (0, 1):
            seen = conversation(played, seat)
            assert seen["reward"] == played.reward
            people += sum(seen["train"])
        supplied += sum(not turn.recorded for turn in turns)
    assert people > 1000 and supplied < people


def test_human_proposals_read_as_recorded(human_games: list[dict[str, Any]]) -> None:
    read, unread = 0, []
    for number, game in enumerate(human_games):
        roster = GameState.from_dict(game).roster
        for each in (each for each in game["action_log"] if each["type"] == "proposal"):
            plan = parse_proposal(each["proposal"], roster)
            if not isinstance(plan, ActionError) and set(enumerate(plan)) == set(map(tuple, each["proposal_ids"])):
                read += 1
            else:
                unread.append(number)
    assert (read, unread) == (228, [32, 32, 32]), "game 32 has other names"
    roster = read_record(human_games[32]).state.roster
    assert len(set(roster.reviewers)) == 8 and "Ava Li" not in roster.reviewers
    named = {**human_games[32], "reviewers": roster.reviewers, "papers": roster.papers}
    assert read_record(named).state.roster == roster


@pytest.mark.parametrize(
    ("log", "reward", "kinds"),
    [
        (("1 hi", "1 hello?", "0 proposes 1 0 2", "0 proposes 0 1 2", "0 ok?", "1 accepts"), 1.0, "mmppma"),
        (("0 proposes 1 0 2", "1 rejects", "0 oh"), 0.0, "prm"),
    ],
)
def test_a_new_plan_replaces_a_pending_one_and_talk_does_not(log: tuple[str, ...], reward: float, kinds: str) -> None:
    played = read_record(record(*log))
    assert (played.reward, "".join(action.kind[0] for _, action in played.actions)) == (reward, kinds)


def test_names_are_read_off_the_proposals() -> None:
    played = read_record(record("0 proposes 0 1 2", "1 accepts", names=("Xu", "Yan", "Zed")))
    assert (played.state.roster.reviewers, played.reward) == (("Xu", "Yan", "Zed"), 1.0)


@pytest.mark.parametrize(
    ("log", "turns"),
    [
        (ASKED, ["0 [message] Ava on BLEU?", "1 [message] Nine.", "0 [propose]", "1 [accept]"]),
        (
            # seat 1 opens; twice in a row, and a tag within; proposes; talk while a plan is pending; another replaces it
            ("1 Hi.", "1 I see nines. [accept]", "1 proposes 0 1 2", "0 Hm, wait.", "0 proposes 0 1 2", "1 accepts"),
            [f"0 {GO_ON} +", "1 [message] Hi. I see nines. (accept)", f"0 {GO_ON} +", "1 [propose]", "0 [reject] +", f"1 {GO_ON} +",
             "0 [propose]", "1 [accept]"],
        ),
    ],
)  # fmt: skip
def test_what_people_did_besides_is_made_legal(log: tuple[str, ...], turns: list[str]) -> None:
    """A turn that is supplied ends in +."""
    found = playable(read_record(record(*log)))
    heads = [turn.text.split("\n")[0] for turn in found]
    assert [f"{t.seat} {head}{'' if t.recorded else ' +'}" for t, head in zip(found, heads, strict=True)] == turns


@pytest.mark.parametrize("seat", [0, 1])
def test_conversation_targets_are_the_seats_own_turns(seat: int) -> None:
    game = read_record(record(*ASKED))
    seen = conversation(game, seat)
    env = MatchingEnv(max_proposals=None)  # people were held to no number of plans
    env.reset(game.state)
    assert seen["messages"][0] == env.prompt(seat)[0] and seen["reward"] == 1.0
    targets = [m["content"].split("\n")[0] for m, own in zip(seen["messages"], seen["train"], strict=True) if own]
    assert targets == (["[message] Ava on BLEU?", "[propose]"] if seat == 0 else ["[message] Nine.", "[accept]"])
    assert [message["role"] for message in seen["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    if seat == 1:
        assert seen["messages"][1]["content"] == f"{env.prompt(1)[1]['content']}\n\n[message] Ava on BLEU?"
        assert seen["messages"][3]["content"].endswith("Answer with [accept] or [reject].")


def test_supplied_words_are_no_targets() -> None:
    seen = conversation(read_record(record("1 Hi.", "1 proposes 0 1 2", "0 accepts")), 0)
    said = [
        (m["content"], own) for m, own in zip(seen["messages"], seen["train"], strict=True) if m["role"] == "assistant"
    ]
    assert said == [(GO_ON, False), (GO_ON, False), ("[accept]", True)]


def test_labels_are_target_tokens_as_in_training(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    seen = conversation(read_record(record(*ASKED)), 0)
    row = encode(seen["messages"], seen["train"], chat)
    ids, labels = row["input_ids"], row["labels"]
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    target = tokenizer.decode([label for label in labels if label != -100])
    first, second = (seen["messages"][place]["content"] for place in (2, 4))
    assert target == f"{first}<|im_end|>{second}<|im_end|>"
    assert tokenizer.decode(ids) + "\n" == chat.render(seen["messages"], add_generation_prompt=False)
    silent = encode(seen["messages"], [False] * len(seen["train"]), chat)
    assert set(silent["labels"]) == {-100} and silent["input_ids"] == ids


def test_the_command_writes_conversations(tmp_path: Path, tokenizer: Any) -> None:
    source = tmp_path / "recorded.jsonl"
    good, none = record(*ASKED), record("0 Hello?", "1 Bye.")
    source.write_text("\n".join(map(json.dumps, (good, none))))
    assert convert(source, tmp_path / "sft.jsonl", Chat(tokenizer)) == 4
    rows = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert [(row["seat"], row["reward"]) for row in rows] == [(0, 1.0), (1, 1.0), (0, 0.0), (1, 0.0)]
    for row in rows:
        assert len(row["messages"]) == len(row["train"]) and len(row["input_ids"]) == len(row["labels"])
    games = read_rows(source, MatchingEnv(max_proposals=None), (0,))
    assert [GameState.from_dict(game.game_state) for game in games] == [GameState.from_dict(g) for g in (good, none)]
    assert games[0].prompt == conversation(read_record(good), 0)["messages"][:2]


NO_NAMES = [entry("0 proposes 0 1 2", (*NAMES[:2], name)) for name in ("Nobody", "Nono")]
OWN = "games.jsonl is slim_rl's own games file, which is played as it stands"
REFUSED: list[tuple[list[Any], str]] = [
    ([record("1 accepts")], "none is pending"),
    ([record("0 proposes 0 1 2", "1 rejects", "1 accepts")], "none is pending"),
    ([record("0 proposes 0 1 2", "1 accepts", "0 more")], "after the accepted proposal"),
    ([record({"type": "message", "player": 0})], "Entry 1 .* malformed"),
    ([record({"type": "wave", "player": 0})], "wave"),
    ([record(entry("0 proposes 0 1 2") | {"proposal_ids": [[0, 1], [1, 0], [2, 2]]})], "not the same plan"),
    ([record(*NO_NAMES)], "both"),
    ([record(), "{nonsense"], "line 2"),
    ([], rf"{OWN}((?!it needs).)*$"),
    ([{"turns": [], "game_id": "g"}], "is slim_rl's own dialogue log, which slim-rl show and analyze read"),
    ([{"a": 1}], "line 1: This is not a game state: it has none of table, "),
    ([record() | {"mask1": None}], "line 1: The game state cannot be used: it has no mask1"),
    ([{key: value for key, value in record().items() if key != "action_log"}], "action_log"),
]


@pytest.mark.parametrize(("lines", "says"), REFUSED)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, lines: list[Any], says: str) -> None:
    source, game = tmp_path / "games.jsonl", read_record(record()).state
    source.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    if not lines:
        write_rows([GameRow.of(MatchingEnv(), game.id, game)], source)
    with pytest.raises(DataError, match=says):
        convert(source, tmp_path / "out.jsonl")
