"""Teaches a game to a model that knows nothing at all, by GRPO on a CPU.

    python -m examples.train examples/treasure.yaml [--set key=value …]

The starting model is a Qwen3 of random weights; all that it comes to know it learns from reward. To train a real model instead,
name it, with a lower learning rate: --set policy.model=Qwen/Qwen2.5-0.5B-Instruct --set train.learning_rate=1e-6.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from slim_rl.backends import Result, train
from slim_rl.config import Config, load_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.errors import SlimError


def make_model(config: Config) -> None:
    """Writes a random model and a tokenizer of the game's opening messages to the folder `policy.model`, unless it is there."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from slim_rl.lab.warmstart.tokenizer import train_tokenizer

    folder = Path(config.policy.model)
    if folder.exists():
        return
    tokenizer = train_tokenizer((m["content"] for row in load_rows(config)[:8] for m in row.prompt), 300)
    torch.manual_seed(config.seed)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, **shape)
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(path: str, overrides: Sequence[str] = ()) -> Result:
    config = load_config(path, overrides)
    if config.policy.model.startswith("data/"):
        make_model(config)
    result = train(config)
    assert result is not None  # TRL trains in this process
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        result = main(options.config, options.overrides)
    except SlimError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    for name, dialogues in (("before", result.before), ("after", result.after)):
        if rewards := [dialogue.reward for dialogue in dialogues if dialogue.reward is not None]:
            print(f"{name}: mean reward {sum(rewards) / len(rewards):.3f} over {len(rewards)} held-out games")
