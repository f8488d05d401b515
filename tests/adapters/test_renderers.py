"""Our token boundaries beside those of `renderers`, which writes each family's template by hand: token for token the same.

The templates are those that TRL ships; a tokenizer made here has each family's control tokens, so nothing is loaded from a hub. Left out
are gpt-oss, whose renderer downloads a vocabulary, and families of which TRL ships no template, or one of another revision (DeepSeek V3).
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.lab.warmstart.tokenizer import train_tokenizer

renderers = pytest.importorskip("renderers", reason="renderers comes with verifiers")
TRL = importlib.util.find_spec("trl")
if TRL is None or TRL.origin is None:
    pytest.skip("TRL ships the templates: pip install slim-rl[local]", allow_module_level=True)
TEMPLATES = Path(TRL.origin).parent / "chat_templates"

TOOLS = "<tool_call> </tool_call> <tool_response> </tool_response>"
SEEN = f"{TOOLS} <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
LLAMA = "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|> <|eom_id|>"
GLM = f"{TOOLS} [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <arg_key> </arg_key> <arg_value> </arg_value>"
GEMMA = (
    "<bos> <eos> <|turn> <turn|> <|channel> <channel|> <|think|> <|tool> <tool|> <|tool_call> <tool_call|> "
    '<|tool_response> <tool_response|> <|"|> <|image> <image|> <|image|> <|audio> <audio|> <|audio|> <|video|>'
)
BOTH = (False, True)
# TRL's template, the renderer's config, control tokens, end and beginning of text, and the ways of thinking that it knows
FAMILIES: list[tuple[str, str, str, str, str | None, tuple[bool, ...]]] = [
    ("qwen2_5", "Qwen3", TOOLS, "<|im_end|>", None, (True,)),
    ("qwen3", "Qwen3", TOOLS, "<|im_end|>", None, BOTH),
    ("qwen3_training", "Qwen3", TOOLS, "<|im_end|>", None, BOTH),
    ("qwen3_instruct_2507", "Qwen3", TOOLS, "<|im_end|>", None, (True,)),
    ("qwen3_vl", "Qwen3VL", SEEN, "<|im_end|>", None, (False,)),
    ("qwen3_5_nothink", "Qwen35", SEEN, "<|im_end|>", None, BOTH),
    ("qwen3_5_think", "Qwen35", SEEN, "<|im_end|>", None, BOTH),
    ("qwen3_6", "Qwen36", SEEN, "<|im_end|>", None, BOTH),
    ("qwen3_8", "Qwen38", SEEN, "<|im_end|>", None, BOTH),
    ("llama3", "Llama3", LLAMA, "<|eot_id|>", "<|begin_of_text|>", (False,)),
    ("llama3_1", "Llama3", LLAMA, "<|eot_id|>", "<|begin_of_text|>", (False,)),
    ("llama3_2", "Llama3", LLAMA, "<|eot_id|>", "<|begin_of_text|>", (False,)),
    ("glm4moe", "GLM45", GLM, "<|endoftext|>", None, BOTH),
    ("nemotron_3_nano", "Nemotron3", f"{TOOLS} <image>", "<|im_end|>", None, BOTH),
    ("gemma4", "Gemma4", GEMMA, "<turn|>", "<bos>", BOTH),
    ("gemma4_v5", "Gemma4", GEMMA, "<turn|>", "<bos>", BOTH),
]
CASES = [(*family, thinking) for *family, ways in FAMILIES for thinking in ways]
OPENING = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Table."}]
ANOTHER_SYSTEM = ("qwen2_5", "llama3", "llama3_2")  # the renderer's family writes a date, or tools, where these do not


def made(template: str, config: str, controls: str, end: str, begin: str | None, thinking: bool) -> tuple[Chat, Any]:
    """A family's boundaries, ours and theirs, for a tokenizer that knows its control tokens."""
    from tokenizers import AddedToken

    text = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    tokenizer = train_tokenizer(["[message] What is Ava Li on BLEU?\n"] * 4, 400, text)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in controls.split()])
    tokenizer.eos_token = end
    if begin:
        tokenizer.bos_token = begin
    kind = getattr(renderers, f"{config}RendererConfig")
    wanted = {
        "enable_thinking": thinking,
        "thinking_retention": "all",
    }  # earlier thoughts stay, as the policy sampled them
    given = {name: value for name, value in wanted.items() if name in kind.model_fields}
    return Chat(tokenizer, thinking), renderers.create_renderer(tokenizer, kind(**given))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[-1]}")
def test_the_next_turn_begins_where_renderers_say(case: tuple[Any, ...]) -> None:
    chat, renderer = made(*case)
    prompt = chat.prompt_ids(OPENING)
    if case[0] not in ANOTHER_SYSTEM:
        assert prompt == renderer.render_ids(OPENING, add_generation_prompt=True)
    said = chat.said_ids("[message] What is Ava Li?", "Ava." if chat.thinking else None)
    turns = [said, chat.said_ids("[accept]", "Hm.")]
    if case[0] != "glm4moe":  # whose turns end where the next begins: renderers adds <|endoftext|> to one that was cut
        turns.append(said[:-1])
    for sampled in turns:
        bridged = renderer.bridge_to_next_turn(prompt, sampled, [{"role": "user", "content": "[message] 62"}])
        assert bridged is not None
        assert list(bridged.token_ids) == prompt + sampled + chat.turn_ids(sampled, "[message] 62")
