"""A chat partner behind a real llama.cpp server, which serves the tiny warm start.

The model does not know the partner's rules. So llama.cpp's grammars choose its replies, and the test is of what surrounds them.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.session import Games
from tests.adapters.played import ASK, PROPOSE, SMALL, by_worker
from tests.paths import ROOT

gguf = pytest.importorskip("gguf")
pytest.importorskip("xllamacpp", reason="`make test-adapters` installs it")

CONTEXT = 8192  # tokens
# It ends when its standard input does, so that no server outlives the tests.
SERVER = f"""
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.cpuparams.n_threads = sys.argv[1], {CONTEXT}, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def write_gguf(model: Path, path: Path) -> None:
    """Writes a Qwen3 of transformers as a GGUF file."""
    from safetensors.torch import load_file

    config, tokenizer = (json.loads((model / name).read_bytes()) for name in ("config.json", "tokenizer.json"))
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = [f"[PAD{index}]" for index in range(config["vocab_size"])]
    for token, index in (tokenizer["model"]["vocab"] | added).items():
        tokens[index] = token
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in added else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_chat_template((model / "chat_template.jinja").read_text(encoding="utf-8"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, weight in load_file(model / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, (".weight",)), weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    write_gguf(ROOT / "data" / "warmstart", path)
    command = [sys.executable, "-c", SERVER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"{server.stdout.readline().strip()}/v1"


def games_of(url: str, grammar: str | None = None, **settings: Any) -> Games:
    """Small games with the server's model, whose replies have the form of `grammar` (None: end only at `max_tokens`)."""
    extra = {"grammar": f"root ::= {grammar}"} if grammar else {"ignore_eos": True}
    endpoint = {"base_url": url, "model": "tiny.gguf", "max_tokens": 40, "extra": extra, **settings}
    return Games(SMALL | {"partner": {"kind": "openai", "args": {"accept_fraction": 0}, "openai": endpoint}})


async def played(games: Games, words: list[str], number: int = 0) -> Dialogue:
    """The first game, in which the policy writes `words`."""
    return await by_worker(games, games.deal("train", 1)[0], words, number)


# grammar of the replies, what the policy writes, stop reason, partner's turns, malformed replies of the last one
REPLIES: dict[str, tuple[str | None, list[str], StopReason, list[str], int]] = {
    "messages": ('"[message] Hard to say."', [ASK] * 3, StopReason.MAX_TURNS, ["[message] Hard to say."] * 3, 0),
    "acceptance": ('"[accept]"', [PROPOSE], StopReason.AGREED, ["[accept]"], 0),
    "no tag": ('"It is 60."', [ASK] * 3, StopReason.PARTNER_ERRORS, ["[message] It is 60.", ""], 4),
    "no end": (None, [ASK], StopReason.PARTNER_ERRORS, [""], 4),
}


@pytest.mark.parametrize(("grammar", "words", "ending", "replies", "malformed"), REPLIES.values(), ids=REPLIES)
async def test_llama_cpp_partner_plays_to_the_end(
    url: str, grammar: str | None, words: list[str], ending: StopReason, replies: list[str], malformed: int
) -> None:
    dialogue = await played(games_of(url, grammar), words)
    turns = [turn for turn in dialogue.turns if turn.role == "partner"]
    assert (dialogue.stop_reason, [turn.text for turn in turns]) == (ending, replies)
    assert turns[-1].usage.malformed == malformed
    for number, turn in enumerate(turns):
        usage = turn.usage
        assert usage.calls and usage.output_tokens and not usage.estimated and not usage.retries
        # a later request begins with the whole previous one
        assert number == 0 or 0.5 * usage.input_tokens < usage.cached_tokens < usage.input_tokens


async def test_llama_cpp_four_requests_at_once_are_answered(url: str) -> None:
    games = games_of(url, '"[message] Hard to say."', concurrency=4)
    dialogues = await asyncio.gather(*(played(games, [ASK] * 3, number) for number in range(4)))
    assert [dialogue.stop_reason for dialogue in dialogues] == [StopReason.MAX_TURNS] * 4


async def test_llama_cpp_full_context_fails_one_game(url: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.md"
    rules.write_text("A word. " * CONTEXT)
    games = games_of(url, prompt=str(rules))
    dialogue = await played(games, [ASK])
    assert dialogue.stop_reason is StopReason.PARTNER_FAILED
    assert "was refused: HTTP 400" in str(dialogue.failure) and "context size" in str(dialogue.failure)
    assert games.worker.partner_of(games.worker.spec(games.deal("eval", 1)[0], "x")).endpoint.spend.total.retries == 0  # type: ignore[union-attr]
