"""Recorded DialOp games as chat data: what a player saw and said, for supervised fine-tuning and for evaluation.

People did not alternate strictly and talked while a proposal was pending; the game here allows neither. So a record is first made
into a game that can be played: stepping a `MatchingEnv` through the converted turns gives no error and the recorded reward. Words
that had to be supplied for that are the partner's, or the player's own but no target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.rows import GameRow, write_rows
from slim_rl.errors import DataError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.records import RecordedGame, read_record

GO_ON = "[message] Go on."  # for a player who, in the record, let the other speak twice


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """Turn of a playable game. `recorded`: a person wrote it; otherwise it was added to keep the turns legal."""

    seat: int
    text: str
    recorded: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """A game as one seat lived it.

    Attributes:
        messages: chat messages; the assistant is the seat's player.
        train: one flag a message; True for the player's own recorded words, the targets.
        seat, reward, state: whose view it is, how the game ended, and which game it was.
    """

    messages: list[dict[str, str]]
    train: list[bool]
    seat: int
    reward: float
    state: GameState


def convert_command(
    recorded: str | Path,
    output: str | Path,
    *,
    form: str = "sft",
    seat: str | int = "both",
    tokenizer: str | None = None,
    min_reward: float = 0.0,
) -> int:
    """Converts a JSONL file of recorded games; returns how many rows were written.

    Args:
        form: "sft": one conversation a row (`messages`, `train`, `reward`, ...); "games": the games as a games file, whose
            prompts open a game that people played.
        seat: whose view: 0, 1 or both.
        tokenizer: a folder or hub name; the rows then have `input_ids` and `labels` too, with -100 where there is no target.
        min_reward: leave out games that ended below this.

    Raises:
        DataError: the file or a record in it cannot be read; the message names the line.
    """
    if form not in ("sft", "games"):
        raise DataError(f"The form {form!r} is unknown: choose sft or games.")
    if form == "games" and tokenizer:
        raise DataError("A games file holds no tokens: leave out the tokenizer, or choose the form sft.")
    if str(seat) not in ("0", "1", "both"):
        raise DataError(f"The seat {seat!r} is unknown: choose 0, 1 or both.")
    seats = (0, 1) if str(seat) == "both" else (int(seat),)
    games = [game for game in read_recorded(recorded) if game.reward >= min_reward]
    if form == "games":
        env = MatchingEnv(max_proposals=None)
        return write_rows(
            (GameRow.of(env, game.state.id, game.state, each) for game in games for each in seats), output
        )
    conversations = [conversation(game, each) for game in games for each in seats]
    chat = None
    if tokenizer:
        from slim_rl.policies import load_tokenizer

        chat = Chat(load_tokenizer(tokenizer))
    return jsonl.write(output, (_row(each, chat) for each in conversations))


def read_recorded(path: str | Path) -> Iterator[RecordedGame]:
    """Reads every recorded game of one of DialOp's files. Raises DataError, naming the line."""
    for number, record in jsonl.read(path, "recorded games", "give the path of DialOp's optimization.jsonl"):
        if isinstance(record, Mapping) and "action_log" not in record and {"metadata", "turns"} & record.keys():
            kind = "dialogue log, which slim-rl show and analyze read"
            if "turns" not in record:
                kind = "games file, which is played as it stands (data.eval) and holds no words yet"
            raise DataError(
                f"{path} is slim_rl's own {kind}; convert takes recorded human games: DialOp's optimization.jsonl."
            )
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

    for recorded in game.actions:
        seat, action = recorded.seat, recorded.action
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


def conversation(game: RecordedGame, seat: int) -> Conversation:
    """Returns the game as `seat` read it, in the texts of `MatchingEnv`, as in a training run."""
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
    return Conversation(messages, train, seat, env.get_normalized_reward(), game.state)


def _words(text: str) -> str:
    """Returns a message's text on one line, with nothing in it that reads as an action's tag."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def _row(played: Conversation, chat: Chat | None) -> dict[str, Any]:
    return {
        "messages": played.messages,
        "train": played.train,
        "game_id": played.state.id,
        "seat": played.seat,
        "reward": played.reward,
        "game_state": played.state.to_dict(),
        **(encode(played.messages, played.train, chat) if chat is not None else {}),
    }


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
