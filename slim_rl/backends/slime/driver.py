"""slime's training script as the entry point of its Ray job, with what a paid partner needs.

python -P -m slim_rl.backends.slime.driver SLIME_DIR/train.py [slime's flags]

a flag that slime would ignore ends the job before anything starts: slime parses a command line several times over, and each
    parser ignores what it does not know
the run's folder is locked while the job runs
the policy plays the first rollout of a resumed run, not the reference model of its KL term
a run that the log functions stop (`RunStopped`, see `log`), or whose engines take no weights, saves the step that it trained last, and ends
    with exit code 1
a policy that has diverged ends the run without a save
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from slim_rl.backends import say
from slim_rl.errors import Diverged, RunStopped, SlimError, did_you_mean
from slim_rl.runs import lock_folder

# Megatron's messages, before it applies a gradient (`check_for_nan_in_loss_and_grad`, which slime leaves on)
_NOT_FINITE = ("found NaN in local grad norm", "found Inf in local grad norm")
# slime's arguments that load a second set of weights into the model: a reference, a teacher, the actor of an earlier step
SECOND_WEIGHTS = ("use_kl_loss", "kl_coef", "use_opd", "keep_old_actor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs slime's script. Returns 1 if it is refused or stopped: an unknown flag, a folder in use.

    Args:
        arguments: the script and slime's flags; None: those of this process.
    """
    script, *flags = sys.argv[1:] if arguments is None else arguments
    sys.argv = [script, *flags]
    sys.path.insert(0, str(Path(script).parent))  # as if Python had been given the script
    module = importlib.import_module(Path(script).stem)  # which does not train on import
    with flags_noted() as known:
        args = module.parse_args()
    unknown = unknown_flags(flags, known)
    for sentence in unknown:
        say(sentence)
    if unknown:
        return 1
    folder = Path(args.custom_config_path).parent
    try:
        with lock_folder(folder, f"The run '{folder.name}' in {folder}", "give this one another SAVE_DIR"):
            return train(module, args)
    except SlimError as error:  # another job works in the folder
        say(str(error))
        return 1


def train(module: ModuleType, args: Any) -> int:
    """Trains by the script's `train`. Returns 0, or 1 if the run was stopped or has diverged."""
    models: list[TrainedGroup] = []
    managers: list[Any] = []
    create = module.create_training_models

    def create_training_models(args: Any, groups: Any, manager: Any, *others: Any, **kwargs: Any) -> Any:
        created = create(args, groups, manager, *others, **kwargs)
        managers.append(manager)

        def keep_place(step: int) -> None:
            module.ray.get(manager.save.remote(step))

        models.extend(TrainedGroup(group, keep_place) for group in created if group is not None)
        models[0].hold_policy(module.ray)
        return created

    module.create_training_models = create_training_models  # type: ignore[attr-defined]
    try:
        module.train(args)
        return 0
    except RunStopped as stop:  # from one of Ray's actors: its error is an instance of the cause's class too
        say(_message(stop))
        step = max((model.trained for model in models), default=-1)
        if step >= 0:
            if args.offload_rollout:  # the engines hold the GPUs that saving needs; those that are gone hold nothing
                with suppress(Exception):
                    module.ray.get(managers[0].offload.remote())
            for model in models:
                model.save(step)
            print(
                f"slim-rl: the {step + 1} steps trained so far are saved; the same command resumes from there.",
                flush=True,
            )
    except Exception as error:
        if not (divergence := _divergence(error)):
            raise
        say(
            f"Training stops. {divergence} Nothing is saved now; lower train.learning_rate and start over under another name "
            "(--set name=...)."
        )
    module.ray.get(managers[0].dispose.remote())
    module.finish_tracking(args)
    return 1


class TrainedGroup:
    """slime's group of actors that hold one model, the policy or a critic.

    The place in the games is saved before the model: slime resumes from any model, and without its place plays from the first game again.

    Args:
        keep_place: function that saves the place in the games as that of a step.

    Attributes:
        trained: step trained last; -1 before the first.
    """

    def __init__(self, group: Any, keep_place: Callable[[int], Any]) -> None:
        self.group, self.trained, self._saved = group, -1, -1
        train, save, update = group.async_train, group.save_model, group.update_weights

        def async_train(step: int, *args: Any, **kwargs: Any) -> Any:
            self.trained = step
            return train(step, *args, **kwargs)

        def save_model(step: int, *args: Any, **kwargs: Any) -> Any:
            self._saved = step
            with suppress(Exception):  # a model without a place is better than none
                keep_place(step)
            return save(step, *args, **kwargs)

        def update_weights() -> Any:
            try:
                return update()
            except Exception as error:
                if self.trained < 0:  # nothing to save
                    raise
                raise RunStopped(f"Training stops: the engines took no new weights: {_message(error)}") from error

        group.async_train, group.save_model, group.update_weights = async_train, save_model, update_weights

    def save(self, step: int) -> None:
        """Saves the model as that of a step, unless it is saved or not trained yet."""
        if self.trained >= 0 and self._saved != step:
            self.group.save_model(step, force_sync=True)

    def hold_policy(self, ray: Any) -> None:
        """Makes the model hold the weights that are trained.

        slime loads those of a reference after them, and switches back only if it offloads. Otherwise the first rollouts of a resumed run
        would be played with the reference's weights (docs/upstream.md).
        """
        args = self.group.args
        others = any(getattr(args, name, False) for name in SECOND_WEIGHTS)
        if others and not args.offload_train and not args.debug_rollout_only:
            ray.get([actor._switch_model.remote("actor") for actor in self.group._actor_handlers])


@contextmanager
def flags_noted() -> Iterator[set[str]]:
    """Yields the set that gets every flag of every parser that reads the command line within the block."""
    known: set[str] = set()
    parse = argparse.ArgumentParser.parse_known_args

    def remembering(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is None:  # not a parser that an import runs on other arguments
            known.update(self._option_string_actions)
        return parse(self, args, namespace)

    argparse.ArgumentParser.parse_known_args = remembering  # type: ignore[method-assign]
    try:
        yield known
    finally:
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]


def unknown_flags(arguments: Sequence[str], known: set[str]) -> list[str]:
    """Returns one sentence per flag that no parser of slime's has."""
    problems = []
    for flag in dict.fromkeys(word.partition("=")[0] for word in arguments if word.startswith("--")):
        if flag not in known:
            problems.append(f"slime has no flag {flag} and would ignore it{did_you_mean(flag, known)}")
    return problems


def _message(error: Exception) -> str:
    """Returns the exception's message without Ray's remote traceback."""
    return str(getattr(error, "cause", None) or error)


def _divergence(error: Exception) -> str:
    """Returns a message if the error means that weights or gradient are not finite, else nothing."""
    if isinstance(error, Diverged):
        return _message(error)
    return "The gradient is not a finite number." if any(words in str(error) for words in _NOT_FINITE) else ""


if __name__ == "__main__":
    raise SystemExit(main())
