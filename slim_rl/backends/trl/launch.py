"""`slim-rl train` with TRL: the run itself, in this process."""

import warnings

from slim_rl.backends import Request, Result, say
from slim_rl.backends.ready import check_model, check_start, check_training
from slim_rl.config import Config
from slim_rl.errors import ConfigError
from slim_rl.formats import count
from slim_rl.policies import check_model_folder
from slim_rl.ranks import own_rank, start_together
from slim_rl.runs import RunFolder


def check(config: Config) -> None:
    """Raises ConfigError if TRL cannot do what the config asks for."""
    check_training(config)


def missing() -> str:
    """Returns what this machine lacks: nothing, since TRL trains on any."""
    return ""


def start(request: Request) -> Result | None:
    """Trains, or checks the config and prints how many dialogues would be played. Raises SlimError if it cannot be trained."""
    config = request.config
    if request.extra:
        raise ConfigError(f"'{request.extra[0]}' is an override for verl; with trl, keys are changed by --set.")
    if not request.dry_run:
        words = [*(f"--set={override}" for override in request.overrides), *(["--fresh"] if request.fresh else [])]
        start_together(config.train.processes, ["train", str(request.path), *words])
    check(config)
    if own_rank() == 0:
        check_model(config.policy.model)
        check_model_folder(config.run_dir / "model")
        check_start(config, RunFolder(config), request.fresh)
        steps = f"{count(config.train.steps, 'step')} of {config.train.dialogues} dialogues"
        say(f"{config.name}: {steps}, in {config.run_dir}" + ("" if request.dry_run else "; loading TRL and the model"))
    if request.dry_run:
        from slim_rl.backends.trl.arguments import grpo_arguments

        print(grpo_arguments(config, config.run_dir).to_json_string())
        return None
    # TRL marks rollout_func experimental at every start; that is why it is pinned.
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
    from slim_rl.backends.trl.run import train

    return train(config, fresh=request.fresh)
