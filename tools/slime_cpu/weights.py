"""The weights in memory: 2 GB of float32 for a Qwen of 0.5B, each time that they are kept."""


def in_place() -> None:
    """Has slime send the weights from where Megatron trains them: its copy in memory is for a GPU, or for other weights to switch to."""
    from slime.utils import tensor_backper

    tensor_backper.TensorBackuper.create = lambda source_getter, single_tag: tensor_backper._TensorBackuperNoop(
        source_getter, "actor"
    )
