"""A checkpoint of TRL's: all weights, or adapters, which are merged into the model that training started from."""

from pathlib import Path

from slim_rl.backends.trl.checkpoints import restore, whole_checkpoints
from slim_rl.config import Config
from slim_rl.files import read_object
from slim_rl.policies.transformers import load_model


def checkpoints(run: Path) -> dict[int, Path]:
    """Returns the complete checkpoints by step."""
    return whole_checkpoints(run / "checkpoints")


def write(run: Path, config: Config, checkpoint: Path, folder: Path) -> None:
    """Writes the model of `checkpoint` to an empty folder."""
    adapters = checkpoint / "adapter_config.json"
    source = config.policy
    if not adapters.exists():
        source = source.changed(model=str(checkpoint))
    elif not Path(source.model).exists():
        base = read_object(adapters).get("base_model_name_or_path")
        source = source.changed(model=base or source.model)
    model, tokenizer = load_model(source)
    if adapters.exists():
        model = restore(model, config, checkpoint).merge_and_unload()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
