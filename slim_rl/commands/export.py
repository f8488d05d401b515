"""`slim-rl export`: the checkpoint of a run as a Hugging Face model with a card, in a folder and, if asked for, on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.export import export
from slim_rl.commands.options import check_folder
from slim_rl.commands.screen import working
from slim_rl.errors import ConfigError, SlimError


def command(
    run: Annotated[Path, typer.Argument(help="the run's folder, which holds config.yaml", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the model", show_default=False)],
    step: Annotated[
        int | None, typer.Option(min=0, help="the number in the checkpoint's name; the newest by default")
    ] = None,
    results: Annotated[
        list[Path] | None, typer.Option(help="logs of slim-rl evaluate, for the card's table (repeatable)")
    ] = None,
    push: Annotated[str | None, typer.Option(metavar="NAME", help="also upload it to the hub, as OWNER/NAME")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in the folder")] = False,
    private: Annotated[bool, typer.Option("--private", help="with --push: a private repository")] = False,
) -> None:
    """Write a run's checkpoint as a Hugging Face model with a card; --push uploads it to the hub."""
    check_folder(output)
    if push is not None:
        check_name(push)
    elif private:
        raise ConfigError("--private is of a repository on the hub: name one with --push OWNER/NAME.")
    with working(f"exporting {run}"):
        done = export(run, output, step, results or (), overwrite)
    typer.echo(f"{output}: from {done.checkpoint} ({done.backend})")
    if push is not None:
        typer.echo(push_model(output, push, private))


def check_name(name: str) -> None:
    """Raises ConfigError for a name that no hub takes, before anything is converted."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"--push {name} is not a repository's name ({error}); give OWNER/NAME.") from error


def push_model(folder: Path, name: str, private: bool = False) -> str:
    """Uploads a model's folder in one commit, and returns its address. The token is the hub client's own (HF_TOKEN, or `hf auth
    login`); HF_ENDPOINT names another hub.

    Raises:
        SlimError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Model, tokenizer and card")
    except Exception as error:  # the hub's client raises many kinds; all of them mean that it is not there
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SlimError(
            f"{name} could not be put on the hub ({reason[:300]}). The model is in {folder}; the same command with --overwrite tries again."
        ) from error
    return str(address)
