"""`slim-rl export`: writes a run's checkpoint as a Hugging Face model with a card, and uploads it on request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.export import export
from slim_rl.commands.options import check_folder
from slim_rl.commands.screen import working
from slim_rl.errors import ConfigError, SlimError


def command(
    run: Annotated[Path, typer.Argument(help="folder of the run, which holds config.yaml", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the model", show_default=False)],
    step: Annotated[
        int | None, typer.Option(min=0, help="number in the checkpoint's name; the newest by default")
    ] = None,
    results: Annotated[
        list[Path] | None, typer.Option(help="logs of slim-rl evaluate, for the card's table (repeatable)")
    ] = None,
    push: Annotated[str | None, typer.Option(metavar="NAME", help="upload the model to the hub as OWNER/NAME")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in the folder")] = False,
    private: Annotated[bool, typer.Option("--private", help="with --push: create a private repository")] = False,
) -> None:
    """Write a run's checkpoint as a Hugging Face model with a card; --push uploads it to the hub."""
    check_folder(output)
    if push is not None:
        check_name(push)
    elif private:
        raise ConfigError("--private needs a repository on the hub. Name one with --push OWNER/NAME.")
    with working(f"exporting {run}"):
        done = export(run, output, step, results or (), overwrite)
    typer.echo(f"{output}: from {done.checkpoint} ({done.backend})")
    if push is not None:
        typer.echo(push_model(output, push, private))


def check_name(name: str) -> None:
    """Raises ConfigError for an invalid repository name, before anything is converted."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"--push {name} is not a valid repository name ({error}). Use OWNER/NAME.") from error


def push_model(folder: Path, name: str, private: bool = False) -> str:
    """Uploads a model's folder in one commit, and returns its address.

    The hub client reads the token (HF_TOKEN, or `hf auth login`) and HF_ENDPOINT, the address of another hub.

    Raises:
        SlimError: the hub is unreachable, or refuses the upload.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Model, tokenizer and card")
    except Exception as error:  # the hub's client raises many kinds, which all mean that the upload failed
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SlimError(
            f"Uploading {name} failed ({reason[:300]}). The model is in {folder}; run the same command with --overwrite to try again."
        ) from error
    return str(address)
