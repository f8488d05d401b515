"""Token boundaries of a chat template.

    prompt_ids(messages)              input before the policy's first turn
    turn_ids(sampled, observation)    tokens between a sampled turn and the next one
    decode(sampled)                   text and thought of a sampled turn

Invariants:
    Text is encoded once, piece by piece, and nothing is decoded and encoded again.
    The policy's next input is the previous input + the sampled tokens + `turn_ids`, even if the template would rewrite earlier
    turns, as Qwen3's does with thoughts.
    Control tokens come from the template alone: a message that spells ``<|im_end|>`` is encoded as those letters.

A template without a system role (Gemma 2's, Mistral's) gets the rules before the first message (`folded`).
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from slim_rl.errors import ConfigError

Messages = Sequence[dict[str, str]]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_WORD_BEGINS = "\u2581"  # how SentencePiece writes a space


class Chat:
    """Token boundaries of one tokenizer's chat template, found by rendering it around markers.

    Args:
        tokenizer: a fast Hugging Face tokenizer with a chat template.
        thinking: passed to the template as `enable_thinking`, for those that know it.

    Attributes:
        end_id: the token that ends an assistant turn (``<|im_end|>`` for ChatML).
        stop_ids: tokens at which sampling stops: `end_id` and the tokenizer's eos.

    Raises:
        ConfigError: there is no template, or it does not keep messages whole and in order.
    """

    def __init__(self, tokenizer: Any, thinking: bool = False) -> None:
        self.tokenizer = tokenizer
        self.thinking = thinking
        self._name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        self._template = _template_of(tokenizer, self._name)
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(f"The tokenizer {self._name} is a slow one; slim_rl needs its tokenizer.json.")
        self._plain = _without_added_tokens(tokenizer)
        self._frames: dict[tuple[str, ...], list[str]] = {}
        self._folds = False
        try:
            frame = self._frame(("system", "user", "assistant", "user"))
        except ConfigError as error:
            self._folds = True
            try:
                frame = self._frame(("user", "assistant", "user"))
            except ConfigError:
                raise error from None
        added = tokenizer.added_tokens_decoder
        self._controls = {
            str(token): index
            for index, token in added.items()
            if token.special or not self._is_text(str(token), index, "".join(frame))
        }
        # Phi-3's, for one: the white space there is none of the text.
        self._strips_before = {str(token) for token in added.values() if token.lstrip}
        self._strips_after = {str(token) for token in added.values() if token.rstrip}
        # A thought's marks may be special tokens too, and what they enclose would be said if they were left out with the others.
        marks = (THINK_OPEN, THINK_CLOSE)
        self._unsaid = {index for index, token in added.items() if token.special and str(token) not in marks}
        longest_first = sorted(self._controls, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        # Llama-2's turn ends in a space, which its policy need not sample
        first, *rest = [piece for piece in self._split.split(frame[-2].lstrip()) if piece]
        if first not in self._controls:
            raise ConfigError(
                f"The chat template of {self._name} ends an assistant turn with {first!r}, which is not a single token; "
                "slim_rl needs a template whose turns end in a control token."
            )
        header, opening = (re.sub(rf"{THINK_OPEN}|{THINK_CLOSE}|\s", "", piece) for piece in (frame[-3], frame[-1]))
        if not opening.startswith(header):
            raise ConfigError(
                f"The chat template of {self._name} writes {frame[-3].strip()!r} before an assistant's message, but opens the next turn with "
                f"{frame[-1].strip()!r}; slim_rl needs a template without a header that the model itself writes, such as a channel."
            )
        self._end, self.end_id = first, self._controls[first]
        self._before_observation, self._after_observation = "".join(rest), frame[-1]
        self._begins_thought = frame[-1].rstrip().endswith(THINK_OPEN)  # the template does, and not the policy
        eos = tokenizer.eos_token_id
        self.stop_ids = [self.end_id] if eos in (None, self.end_id) else [self.end_id, eos]
        self._check()

    def prompt_ids(self, messages: Messages) -> list[int]:
        """Returns the token ids of the opening messages and of the template's opening of the policy's turn."""
        messages = self.folded(messages)
        frame = self._frame(tuple(message["role"] for message in messages))
        pieces: list[tuple[str, bool]] = [(frame[0], True)]
        for message, after in zip(messages, frame[1:], strict=True):
            pieces += [(message["content"], False), (after, True)]
        return self._encode(pieces)

    def folded(self, messages: Messages) -> Messages:
        """Returns the messages in the template's roles; without a system role, the rules begin the first user message."""
        if not self._folds or not messages or messages[0]["role"] != "system":
            return messages
        rules, *others = messages
        first, *rest = others if others and others[0]["role"] == "user" else [{"role": "user", "content": ""}, *others]
        return [first | {"content": f"{rules['content']}\n\n{first['content']}".rstrip()}, *rest]

    def turn_ids(self, sampled: Sequence[int], observation: str) -> list[int]:
        """Returns the token ids between a sampled turn and the next; none of them is the policy's.

        They are an end token if the turn was cut without one, the observation as a user message, and the template's opening of the
        next assistant turn.
        """
        missing_end = [] if sampled and sampled[-1] == self.end_id else [self.end_id]
        pieces = [(self._before_observation, True), (observation, False), (self._after_observation, True)]
        return missing_end + self._encode(pieces, self._end)

    def said_ids(self, text: str, thought: str | None = None) -> list[int]:
        """Returns the tokens of a turn as a policy would sample it, end token included, for demonstrations and scripted policies.

        A thought that the template has opened is closed; without a `thought` it is empty.
        """
        if thought is None and self._begins_thought:
            thought = ""
        if thought is None:
            return [*self._plain_ids(text), self.end_id]
        pieces = [
            ("" if self._begins_thought else f"{THINK_OPEN}\n", True),
            (thought, False),
            (f"\n{THINK_CLOSE}\n\n", True),
            (text, False),
        ]
        return [*self._encode(pieces), self.end_id]

    def decode(self, sampled: Sequence[int]) -> tuple[str, str | None]:
        """Returns the text of a sampled turn and its thought (None without one).

        After an unclosed thought the text is empty.
        """
        return split_thought(self._text([each for each in sampled if each not in self._unsaid]), self._begins_thought)

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """Returns the template's own rendering as text. Raises ConfigError if the template fails."""
        try:
            rendered = self.tokenizer.apply_chat_template(
                list(self.folded(messages)),
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=self.thinking,
            )
        except Exception as error:
            # a template is a program: the sandbox forbids some of it, and it may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ConfigError(
                f"The chat template of {self._name} cannot be rendered ({reason}); correct it, or use another model's tokenizer."
            ) from error
        return str(rendered)

    def _frame(self, roles: tuple[str, ...]) -> list[str]:
        """Returns the template's text around messages of these roles: one piece before, between and after them."""
        if roles not in self._frames:
            markers = [f"slimMARKER{index}mark" for index in range(len(roles))]
            pieces, rest = [], self.render([{"role": r, "content": m} for r, m in zip(roles, markers, strict=True)])
            for marker in markers:
                before, marked, rest = rest.partition(marker)
                if not marked or marker in rest:
                    raise ConfigError(
                        f"The chat template of {self._name} does not keep the messages {', '.join(roles)} once each and in "
                        "order; slim_rl cannot find the token boundaries of its turns."
                    )
                pieces.append(before)
            self._frames[roles] = [*pieces, rest]
        return self._frames[roles]

    def _encode(self, pieces: Sequence[tuple[str, bool]], after: str = "") -> list[int]:
        """Returns the token ids of (text, from_template) pieces that follow the control token `after`.

        Only the template's control tokens become control tokens. The text between two of them is encoded in one piece, as if all
        had been rendered first.
        """
        ids: list[int] = []
        run: list[str] = []

        def end_run(before: str = "") -> None:
            text = "".join(run)
            text = text.lstrip() if after in self._strips_after else text
            ids.extend(self._plain_ids(text.rstrip() if before in self._strips_before else text))
            run.clear()

        for text, from_template in pieces:
            if not from_template:
                run.append(text)
                continue
            for part in self._split.split(text):
                if part in self._controls:
                    end_run(part)
                    ids.append(self._controls[part])
                    after = part
                elif part:
                    run.append(part)
        end_run()
        return ids

    def _is_text(self, text: str, index: int, written: str) -> bool:
        """Returns True if an added token only spells its text: white space, or text that the template has not `written`.

        Gemma's tokenizer lists such tokens: runs of line ends, and HTML's tags.
        """
        harmless = not text.strip(f"{_WORD_BEGINS} \n\t\r") or text not in written
        return harmless and self._plain_ids(text) == [index]

    def _plain_ids(self, text: str) -> list[int]:
        # A lone surrogate has no UTF-8 form and would stop the encoder.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._plain.encode(clean, add_special_tokens=False).ids) if clean else []

    def _check(self) -> None:
        spelled = "".join(self._controls)
        if set(self._plain_ids(spelled)) & set(self._controls.values()):
            raise ConfigError(
                f"The tokenizer {self._name} makes control tokens of plain text; a partner could then speak for the policy."
            )
        opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello: 1, 2?\nÄ 你好 🙂"}]
        prompt = self.prompt_ids(opening)
        decoded, rendered = self._text(prompt), self.render(opening)
        begins = "".join(self.tokenizer.convert_ids_to_tokens(self._plain_ids("a")[:1]))
        spaced = begins.startswith(_WORD_BEGINS)  # after a control token too
        if self._strips_before or self._strips_after or spaced:
            decoded, rendered = ("".join(text.split()) for text in (decoded, rendered))
        if decoded != rendered:
            raise ConfigError(f"The tokenizer {self._name} does not decode to its own chat template's text.")

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _template_of(tokenizer: Any, name: str) -> str:
    """Returns the chat template; of several named ones the default. Raises ConfigError without one."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, list | tuple):  # the form of tokenizer_config.json
        template = {each["name"]: each["template"] for each in template}
    if isinstance(template, dict):
        template = template.get("default") or (next(iter(template.values())) if len(template) == 1 else None)
    if not template:
        raise ConfigError(
            f"The tokenizer {name} has no chat template, or several and none called default; use an instruct model's tokenizer."
        )
    return str(template)


def split_thought(text: str, opened: bool = False) -> tuple[str, str | None]:
    """Returns a turn's text and its thought (None without one). `opened`: the template has opened the thought already."""
    thought, closed, speech = text.rpartition(THINK_CLOSE)
    if closed and THINK_OPEN not in speech:
        return speech.strip(), thought.replace(THINK_OPEN, "", 1).strip()
    if opened or THINK_OPEN in text:
        return "", text.replace(THINK_OPEN, "", 1).strip()
    return text.strip(), None


def _without_added_tokens(tokenizer: Any) -> Any:
    """Returns a copy of the tokenizer's model without added tokens, which encodes any text as plain text."""
    from tokenizers import Tokenizer

    data = json.loads(tokenizer.backend_tokenizer.to_str())
    data["added_tokens"] = []
    data["truncation"] = data["padding"] = None
    return Tokenizer.from_str(json.dumps(data))
