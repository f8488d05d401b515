"""A chat model as the shy partner of the matching game (shy_prompt.md).

A note under each proposal says what it is worth to the partner (`judging`): a
model cannot solve an assignment problem within one reply, and a partner that accepts at random would teach the policy
nothing. The game's own parser decides what is a proposal. A reply is one valid action of the kind that the situation
asks for: [accept] or [reject] where a proposal waits, else [message]; the shy partner does not propose.
"""

import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from slim_rl.config import OpenAIConfig
from slim_rl.environment import View
from slim_rl.games.matching.actions import DECORATION, TAG, ActionError, is_bare_proposal, parse_action
from slim_rl.games.matching.partners.judging import judge
from slim_rl.games.matching.partners.scripted import ACCEPT_FRACTION, BETTER, check_chance
from slim_rl.games.matching.prompt import RESPOND
from slim_rl.games.matching.state import MatchingView
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.openai_chat import OpenAIPartner

_PARAGRAPHS = re.compile(
    r"\n[\s*_=-]*(?:\n\s*|\Z)|\n(?=\W*(?:notes?|thoughts?|thinking|reasoning|explanation|rationale)\b)", re.IGNORECASE
)
# Thoughts in marks of any name except HTML's own (<note>, [THINK], ◁think▷), and marks without a pair at the end (<unk>, </answer>).
_HTML = r"(?:b|i|u|em|strong|code|span|p)\b"
_ASIDE = re.compile(
    rf"[<◁]\s*(?!{_HTML})([\w:]+)[^<>◁▷]*[>▷].*?[<◁]\s*/\s*\1\s*[>▷]|\[([A-Z]{{3,}})\].*?\[/\2\]|(?:</?(?!{_HTML})[^\W\d]\w*>\s*)+\Z",
    re.DOTALL,
)
# A line that begins as another speaker's in any form ("Other player - ", "## User"), and one with any other label.
_SPEAKER = re.compile(
    r"\n(?:[^\S\n]*>|[\W\d_]{0,20}(?:the )?(?:other player|player|partner|opponent|user|human|assistant|instruction|them|you|me)"
    r"(?:[ _]?(?:\w|one|two|says))?(?: \([^)\n]*\))?[*_)\]]*[^\S\n]*(?:[-–—→>:)\]]|\n|\Z))",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\n[^\S\n]*[#*_]*[^\S\n]*(?P<label>[^\W\d_][\w' ]{0,30})(?::[*_]*|[*_]+:)\s")
_LISTED = re.compile(r"(?:[-*•|]|\d+[.)])\s")


class MatchingChatPartner(OpenAIPartner):
    """See the module's docstring.

    Args:
        accept_fraction: as of the scripted partners.
    """

    def __init__(
        self, config: OpenAIConfig, endpoint: Endpoint | None = None, accept_fraction: float = ACCEPT_FRACTION
    ) -> None:
        check_chance("accept_fraction", accept_fraction, "a share")
        self.accept_fraction = accept_fraction
        super().__init__(config, endpoint)

    @classmethod
    def default_prompt(cls) -> Traversable:
        return resources.files(__package__) / "shy_prompt.md"

    def placeholders(self) -> dict[str, str]:
        return {"accept_percent": f"{100 * self.accept_fraction:g}", "rejection": BETTER}

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"accept_fraction": self.accept_fraction}

    def received_text(self, view: View, index: int) -> str:
        """Returns an utterance's text; for a bare `[propose]`, the plan that the game computed."""
        utterance = view.history[index]
        worked_out = is_bare_proposal(utterance.text) and utterance.observation
        return utterance.observation.partition(f"\n{RESPOND}")[0] if worked_out else utterance.text

    def note(self, view: View, index: int) -> str:
        """Returns the note under a proposal; empty under anything else."""
        game: MatchingView = view.private
        action = parse_action(self.received_text(view, index), game.roster)
        if isinstance(action, ActionError) or action.assignment is None:
            return ""
        verdict = judge(game, action.assignment, self.accept_fraction)
        share = f"{100 * verdict.value / verdict.best:.0f}%" if verdict.best else "100%"
        return (
            f"{RESPOND}\n(Note, for you alone: to you this plan is worth {share} of your best plan, so you "
            f"{'accept' if verdict.accepts else 'reject'} it.)"
        )

    def action_in(self, text: str, view: View) -> str:
        """Returns the one tagged action within a reply with thoughts before or after it.

        A first reply without a tag is a message, since local models often forget the tag there. A reply that can be read in more than one way
        stays as it is, and is refused. Thoughts in marks, and what is written for the other player, are left out.
        """
        text = _ASIDE.sub("", text).strip()
        tag = TAG.search(text)
        if speaker := _SPEAKER.search(text, tag.end() if tag else 0):
            text = text[: speaker.start()]
        tags = list(TAG.finditer(text))
        if not tags:
            first = all(utterance.seat != view.seat for utterance in view.history) and view.private.pending is None
            is_plain = text[:1] not in ("", *"[<{") and not any(
                label.match(f"\n{text}") for label in (_SPEAKER, _LABEL)
            )
            return f"[message] {text}" if first and is_plain else text
        # where the line begins, for tags that only decoration stands before
        lines = [text.rfind("\n", 0, tag.start()) + 1 for tag in tags]
        begins = [at for at, tag in zip(lines, tags, strict=True) if not text[at : tag.start()].strip(DECORATION)]
        begins = begins or [tag.start() for tag in tags]
        if len(begins) > 1:
            return text
        begin = begins[0] if text[: begins[0]].strip(DECORATION) else 0
        action, *rest = _PARAGRAPHS.split(text[begin:])
        for paragraph in rest:  # a list belongs to the words before it
            if not action.endswith((":", "[message]")) and not _LISTED.match(paragraph):
                break
            action = f"{action}\n\n{paragraph}"
        return action.strip()

    def complaint(self, text: str, view: View) -> str | None:
        game: MatchingView = view.private
        action = parse_action(text, game.roster, must_respond=game.pending is not None)
        if isinstance(action, ActionError):
            return action.message
        if action.kind == "propose":
            return "You do not make proposals. Reply with [message]."
        for label in _LABEL.finditer(text):
            if not game.roster.find(label["label"]):
                return f'A line begins with "{label["label"]}:", as another speaker\'s would. Write one message, in sentences.'
        return None
