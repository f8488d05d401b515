"""Recorded DialOp games: who spoke, the text, and the score of the accepted plan, computed again.

People did not alternate strictly, so the record has its own rules: anyone may speak at any time, a new proposal replaces
a pending one, and an answer is to the pending proposal. Proposals are read from their text, as in a live game, and must agree with
the recorded ids.

Nothing here plays a game: a partner that repeats the turns of a dialogue log is `partners.replay`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.actions import Action, ActionError, parse_proposal
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.optimum import Assignment
from slim_rl.games.matching.roster import Roster

_LINE = re.compile(r"\n|<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """Recorded action of seat `seat`."""

    seat: int
    action: Action


@dataclass(frozen=True, slots=True)
class RecordedGame:
    """A recorded game.

    Attributes:
        state: the instance, with the roster it was played with.
        actions: every message, proposal and answer, in order.
        assignment: the accepted plan, or None.
        score: its true score (DialOp's proposal_reward), 0 without one.
        reward: score over the best score.
    """

    state: GameState
    actions: tuple[RecordedAction, ...]
    assignment: Assignment | None
    score: int
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

    actions: list[RecordedAction] = []
    pending: Assignment | None = None
    accepted: Assignment | None = None
    for number, entry in enumerate(log, start=1):
        try:
            action = _action(entry, state.roster)
            seat = int(entry["player"])
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
        actions.append(RecordedAction(seat, action))
    score = state.score(accepted) if accepted is not None else 0
    return RecordedGame(state, tuple(actions), accepted, score, score / state.best_assignment_reward)


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
        raise DataError(
            "The recorded proposals do not name every reviewer: add `reviewers` and `papers` to the record."
        )
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
