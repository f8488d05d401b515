"""Small tokenizer like Qwen's: byte-level BPE with ChatML control tokens. It can encode any text."""

from collections.abc import Iterable
from typing import Any

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK_TOKENS = ("<think>", "</think>")

# ChatML as in Qwen2.5, without tools and default system prompt.
CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

# Unlike in Qwen, a token may span several words, since the text between names and numbers is the game's fixed wording. A name or number
# is one token, so that a very small model can match a reviewer, paper or score by one token.
_WORDS = r"\p{Lu}\p{L}+(?: \p{Lu}\p{L}+)*| ?\p{N}{1,2}|(?:(?! ?\p{N})[^\p{Lu}])+|\p{Lu}"


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024, chat_template: str = CHATML) -> Any:
    """Trains a `PreTrainedTokenizerFast` of at most `vocab_size` tokens on `texts`; the same texts give the same tokenizer."""
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
