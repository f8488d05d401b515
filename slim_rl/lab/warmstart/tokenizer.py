"""A small tokenizer of Qwen's kind: byte-level BPE, ChatML control tokens, numbers digit by digit.

Any text can be encoded; text like its training text takes few tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK_TOKENS = ("<think>", "</think>")

# ChatML as Qwen2.5 writes it, without tools and default system prompt.
CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

# Unlike Qwen's, a token may hold several words: what stands between names and numbers is the game's fixed wording. A name, and a
# number, is a single token, so that a very small model finds the same reviewer, paper or score again by one token.
_WORDS = r"\p{Lu}\p{L}+(?: \p{Lu}\p{L}+)*| ?\p{N}{1,2}|(?:(?! ?\p{N})[^\p{Lu}])+|\p{Lu}"


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024, chat_template: str = CHATML) -> Any:
    """A `PreTrainedTokenizerFast` of at most `vocab_size` tokens, trained on `texts`. The same texts give the same tokenizer."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    room = vocab_size - len(CONTROL_TOKENS) - len(THINK_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=room, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in THINK_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
