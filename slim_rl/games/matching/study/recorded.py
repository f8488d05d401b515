"""Recorded DialOp games: read, scored again, made playable, and as chat data for supervised fine-tuning and for evaluation.

People did not alternate strictly, so the record has its own rules: anyone may speak at any time, a new proposal replaces a pending one, and
an answer is to the pending proposal. Proposals are read from their text, as in a live game, and must agree with the recorded ids. The game
here allows none of that, so a record is first made into a game that can be played: stepping a `MatchingEnv` through the converted turns
gives no error and the recorded reward. Words that had to be supplied for that are the partner's, or the player's own but no target.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.dialogue.chat import Chat
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.actions import Action, ActionError, format_proposal, parse_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import Assignment, GameState

GO_ON = "[message] Go on."  # for a player who, in the record, let the other speak twice
_LINE = re.compile(r"\n|<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecordedGame:
    """A recorded game.

    Attributes:
        state: the instance, with the roster it was played with.
        actions: every message, proposal and answer, in order, each with its seat.
        reward: the accepted plan's score over the best; 0 without one.
    """

    state: GameState
    actions: tuple[tuple[int, Action], ...]
    reward: float


def read_record(record: Mapping[str, Any]) -> RecordedGame:
    """Reads and scores one recorded game: a game state with its `action_log`.

    The roster is the one in the record (`reviewers`, `papers`) or DialOp's; where the record names none and its proposals use
    other reviewers, it is read off those proposals (see `infer_roster`).

    Raises:
        DataError: the record is malformed or contradicts itself.
    """
    state = GameState.from_dict(record)
    log = record.get("action_log")
    if not isinstance(log, list) or not all(isinstance(entry, Mapping) for entry in log):
        raise DataError("The record has no action_log (a list of mappings): give a recorded game, not just its state.")
    if record.get("reviewers") is None and not _known_names(log, state.roster):
        roster = infer_roster(log, state.roster)
        state = GameState.from_dict({**record, "reviewers": roster.reviewers, "papers": roster.papers})

    actions: list[tuple[int, Action]] = []
    pending: Assignment | None = None
    accepted: Assignment | None = None
    for number, entry in enumerate(log, start=1):
        try:
            action = _action(entry, state.roster)
            actions.append((int(entry["player"]), action))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"Entry {number} of the action_log is malformed ({error!r}).") from error
        except DataError as error:
            raise DataError(f"Entry {number} of the action_log: {error}") from error
        if accepted is not None:
            raise DataError(f"Entry {number} of the action_log comes after the accepted proposal.")
        if action.kind in ("accept", "reject") and pending is None:
            raise DataError(f"Entry {number} of the action_log answers a proposal, but none is pending.")
        if action.kind == "accept":
            accepted = pending
        if action.kind != "message":  # talk leaves a proposal pending
            pending = action.assignment
    score = state.score(accepted) if accepted is not None else 0
    return RecordedGame(state, tuple(actions), score / state.best_assignment_reward)


def infer_roster(log: list[Mapping[str, Any]], known: Roster) -> Roster:
    """Infers the reviewers' names from the recorded proposals.

    Each line names a paper of `known`, and the recorded pair with that paper has the reviewer's index.

    Raises:
        DataError: the proposals leave a reviewer without a name, or give one two.
    """
    names: dict[int, str] = {}
    for entry in log:
        if entry.get("type") != "proposal":
            continue
        try:
            reviewer_of = {paper: reviewer for reviewer, paper in entry["proposal_ids"]}
            lines = _LINE.split(html.unescape(entry["proposal"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"A recorded proposal is malformed ({error!r}).") from error
        for line in lines:
            left, _, name = (part.strip(" \t-•*\u2003") for part in line.rpartition(":"))
            papers = {m.index for m in known.find(left, typos=False) if m.kind == "paper"}
            reviewer = reviewer_of.get(papers.pop()) if len(papers) == 1 else None
            if reviewer is not None and name and names.setdefault(reviewer, name) != name:
                raise DataError(f"The recorded proposals call reviewer {reviewer} both {names[reviewer]} and {name}.")
    if sorted(names) != list(range(known.n)):
        raise DataError("The proposals do not name every reviewer: add `reviewers` and `papers` to the record.")
    try:
        return Roster(tuple(names[i] for i in range(known.n)), known.papers)
    except ConfigError as error:
        raise DataError(f"The recorded proposals' names cannot be used: {error}") from error


def _known_names(log: list[Mapping[str, Any]], roster: Roster) -> bool:
    proposals = [entry["proposal"] for entry in log if entry.get("type") == "proposal" and "proposal" in entry]
    return all(not isinstance(parse_proposal(text, roster), ActionError) for text in proposals)


def _action(entry: Mapping[str, Any], roster: Roster) -> Action:
    match entry["type"]:
        case "message":
            return Action("message", str(entry["message"]["data"]))
        case "proposal":
            text = str(entry["proposal"])
            assignment = parse_proposal(text, roster)
            if isinstance(assignment, ActionError):
                raise DataError(f"its proposal cannot be read: {assignment.message}")
            recorded = {(int(reviewer), int(paper)) for reviewer, paper in entry["proposal_ids"]}
            if recorded != set(enumerate(assignment)):
                raise DataError("its proposal's text and its proposal_ids are not the same plan.")
            return Action("propose", text, assignment)
        case "proposal_response":
            return Action("accept" if entry["response"]["accept"] else "reject", "")
        case other:
            raise DataError(f"its type {other!r} is not message, proposal or proposal_response.")


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """Turn of a playable game. `recorded`: a person wrote it; otherwise it was added to keep the turns legal."""

    seat: int
    text: str
    recorded: bool


def convert(recorded: Path, output: Path, chat: Chat | None = None) -> int:
    """Writes both seats' `conversation` of each recorded game to a JSONL file; returns the number of rows.

    Args:
        chat: token boundaries, by which the rows have `input_ids` and `labels` too (`encode`); None: neither.

    Raises:
        DataError: the file or a record in it cannot be read; the message names the line.
    """
    rows = [conversation(game, seat) for game in read_recorded(recorded) for seat in (0, 1)]
    return jsonl.write(output, (row | encode(row["messages"], row["train"], chat) if chat else row for row in rows))


def read_recorded(path: str | Path) -> Iterator[RecordedGame]:
    """Reads every recorded game of one of DialOp's files. Raises DataError, naming the line."""
    for number, record in jsonl.read(path, "recorded games", "give the path of DialOp's optimization.jsonl"):
        if isinstance(record, Mapping) and "action_log" not in record and {"metadata", "turns"} & record.keys():
            kind = "dialogue log, which slim-rl show and analyze read"
            if "turns" not in record:
                kind = "games file, which is played as it stands (data.eval) and holds no words yet"
            raise DataError(f"{path} is slim_rl's own {kind}; convert takes human games: DialOp's optimization.jsonl.")
        try:
            yield read_record(record)
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from error


def playable(game: RecordedGame) -> list[PlayedTurn]:
    """Converts the record into strictly alternating legal turns, beginning with seat 0.

    Messages in a row become one; talk about a pending proposal is left out; a proposal that another one replaced is rejected
    first; where one player acted twice, the other is given words (`GO_ON`).
    """
    turns: list[PlayedTurn] = []
    pending: int | None = None  # the seat whose proposal waits for an answer

    def take(seat: int, text: str) -> None:
        if len(turns) % 2 != seat:
            turns.append(PlayedTurn(1 - seat, GO_ON, False))
        turns.append(PlayedTurn(seat, text, True))

    for seat, action in game.actions:
        match action.kind:
            case "message" if pending is not None:
                continue
            case "message" if turns and turns[-1].seat == seat and turns[-1].text.startswith("[message]"):
                turns[-1] = PlayedTurn(seat, f"{turns[-1].text} {_words(action.text)}".rstrip(), True)
            case "message" if any(character.isalnum() for character in action.text):
                take(seat, f"[message] {_words(action.text)}")
            case "propose":
                if pending is not None:
                    turns.append(PlayedTurn(1 - pending, "[reject]", False))
                assert action.assignment is not None
                take(seat, format_proposal(action.assignment, game.state.roster))
                pending = seat
            case "accept" | "reject" if pending is not None and seat == 1 - pending:
                take(seat, f"[{action.kind}]")
                pending = None
    return turns


def conversation(game: RecordedGame, seat: int) -> dict[str, Any]:
    """Returns the game as `seat` read it, in the texts of `MatchingEnv`, as in a training run.

    Keys:
        messages: chat messages; the assistant is the seat's player.
        train: one flag per message; True for the player's own recorded words, the targets.
        game_id, game_state, seat, reward: the game, whose view it is, and how it ended.
    """
    opening_env = MatchingEnv(max_proposals=None)
    opening_env.reset(game.state)
    messages, train = opening_env.prompt(seat), [False, False]
    env = MatchingEnv(max_turns=10_000, max_proposals=None)  # people were not held to a limit
    env.reset(game.state)
    observation_before: str | None = None
    for turn in playable(game):
        if turn.seat == seat:
            if observation_before is not None and messages[-1]["role"] == "user":  # the partner opened
                messages[-1] = {"role": "user", "content": f"{messages[-1]['content']}\n\n{observation_before}"}
            elif observation_before is not None:
                messages.append({"role": "user", "content": observation_before})
                train.append(False)
            messages.append({"role": "assistant", "content": turn.text})
            train.append(turn.recorded)
        observation, _, info = env.step(turn.text)
        if info["error"]:
            raise DataError(f"The record does not make a legal game: {info['error']}")
        observation_before = observation if turn.seat != seat else None
    return {
        "messages": messages,
        "train": train,
        "game_id": game.state.id,
        "game_state": game.state.to_dict(),
        "seat": seat,
        "reward": env.get_normalized_reward(),
    }


def _words(text: str) -> str:
    """Returns a message's text on one line, with nothing in it that reads as an action's tag."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def encode(messages: list[dict[str, str]], train: list[bool], chat: Chat) -> dict[str, list[int]]:
    """Returns `input_ids` and `labels` (-100 without a target), with the token boundaries of a training run."""
    opening = next(index for index, message in enumerate(messages) if message["role"] == "assistant")
    ids = chat.prompt_ids(messages[:opening])
    labels = [-100] * len(ids)
    last: list[int] = []
    for message, is_target in zip(messages[opening:], train[opening:], strict=True):
        is_trained = message["role"] == "assistant"
        piece = last = chat.said_ids(message["content"]) if is_trained else chat.turn_ids(last, message["content"])
        ids += piece
        labels += piece if is_trained and is_target else [-100] * len(piece)
    return {"input_ids": ids, "labels": labels}
