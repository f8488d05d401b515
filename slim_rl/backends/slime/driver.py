"""slime's training script with checks around it, as the entry point of slime's Ray job.

    python -P -m slim_rl.backends.slime.driver SLIME_DIR/train.py [slime's flags]

    a flag that slime would ignore ends the run before anything starts: slime parses a command line several times over, and each
        parser ignores what it does not know
    the run's folder is locked while the job runs
    a stopped run saves the step it trained last
    a checkpoint is complete only with the position in the games at which the next step begins
    the policy plays the first rollouts of a resumed run, not the reference model of its KL term
    a policy that has diverged ends the run, and nothing is saved after that

slime saves every ``--save-interval`` steps, and an error in a rollout ends its run at once. If the partner's budget is spent, or its
endpoint or the engines stay down, the log functions raise `RunStopped` (see `metrics`) before the step in hand is trained on; so does
this module if the engines do not answer. It then saves the step trained last, by the calls of slime's script, and ends with exit code 1.
The script itself is unchanged: only what it gets from `create_training_models` and `create_rollout_manager` is wrapped.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from slim_rl.backends import say
from slim_rl.errors import Diverged, RunStopped, SlimError
from slim_rl.runs import locked

# Megatron's messages, before it applies a gradient (`check_for_nan_in_loss_and_grad`, which slime leaves on)
_NOT_FINITE = ("found NaN in local grad norm", "found Inf in local grad norm")
# slime's arguments that load a second set of weights into the model: a reference, a teacher, the actor of an earlier step
_SECOND_WEIGHTS = ("use_kl_loss", "kl_coef", "use_opd", "keep_old_actor")
_OF_ENGINES = ("offload", "onload_weights", "onload_kv")  # calls of the rollout manager that the engines must answer


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
            near = "".join(f"; did you mean {name}?" for name in difflib.get_close_matches(flag, known, n=1))
            problems.append(f"slime has no flag {flag} and would ignore it{near}")
    return problems


class TrainingScript:
    """slime's train.py or train_async.py, imported.

    Attributes:
        trained: step trained last; None before the first.
        saved: step saved last.
        places: rollout -> the call that saves the position in the games at which the next rollout begins.
    """

    def __init__(self, script: Path) -> None:
        self.module = _load(script)
        self.trained: int | None = None
        self.saved: int | None = None
        self.places: dict[int, Any] = {}
        self._groups: list[Any] = []
        self._manager: Any = None
        self._watch()

    def run(self) -> int:
        """Trains to the end. Returns 0, or 1 if the run was stopped or refused."""
        with flags_noted() as known:
            args = self.module.parse_args()
        if unknown := unknown_flags(sys.argv[1:], known):
            for sentence in unknown:
                say(sentence)
            return 1
        folder = Path(args.custom_config_path).parent
        try:
            with locked(folder, folder.name):
                return self._train(args)
        except SlimError as error:  # another job works in the folder
            say(str(error))
            return 1

    def _train(self, args: Any) -> int:
        try:
            self.module.train(args)
        except RunStopped as stop:  # from one of Ray's actors: its error is an instance of the cause's class too
            say(_message(stop))
            self._save(args)
            self._end(args)
            return 1
        except Exception as error:
            if (divergence := _divergence(error)) is None:
                raise
            say(
                f"Training stops; the last step that began is {self.trained or 0}. {divergence} Nothing is saved now; lower "
                "train.learning_rate and start over under another name (--set name=...)."
            )
            self._end(args)
            return 1
        return 0

    def _watch(self) -> None:
        module = self.module
        create_models, create_manager = module.create_training_models, module.create_rollout_manager

        def create_training_models(args: Any, pgs: Any, manager: Any, *others: Any, **kwargs: Any) -> Any:
            models = create_models(args, pgs, self._manager, *others, **kwargs)  # which goes to other processes
            self._switch_to_the_actor(models[0])
            for group in models:
                if group is not None:
                    self._note(group)
            return models

        def create_rollout_manager(args: Any, *others: Any, **kwargs: Any) -> Any:
            self._manager, *rest = create_manager(args, *others, **kwargs)
            watched: dict[str, Callable[..., Any]] = {
                name: partial(self._ask_the_engines, name) for name in _OF_ENGINES
            }
            if args.rollout_global_dataset:
                watched |= {"generate": self._generate, "save": self.places.pop}
            return _Watched(self._manager, watched), *rest

        module.create_training_models = create_training_models  # type: ignore[attr-defined]
        module.create_rollout_manager = create_rollout_manager  # type: ignore[attr-defined]

    def _switch_to_the_actor(self, group: Any) -> None:
        """Makes the model hold the weights that are trained.

        slime loads those of a reference after them, and switches back only if it offloads. Otherwise the first rollouts of a resumed run
        would be played with the reference's weights (docs/upstream.md).
        """
        args = group.args
        others = any(getattr(args, name, False) for name in _SECOND_WEIGHTS)
        if others and not args.offload_train and not args.debug_rollout_only:
            self.module.ray.get([actor._switch_model.remote("actor") for actor in group._actor_handlers])

    def _note(self, group: Any) -> None:
        train, save, update = group.async_train, group.save_model, group.update_weights

        def async_train(rollout_id: int, *args: Any, **kwargs: Any) -> Any:
            self.trained = rollout_id
            if group not in self._groups:  # with a critic the actor may start later
                self._groups.append(group)
            return train(rollout_id, *args, **kwargs)

        def save_model(rollout_id: int, *args: Any, **kwargs: Any) -> Any:
            # Before the model: a checkpoint counts once Megatron has numbered it, and slime saves the position after it. A run that
            # ended in between would resume with the first games again.
            if rollout_id in self.places:
                self.module.ray.get(self.places[rollout_id])
            result = save(rollout_id, *args, **kwargs)
            self.saved = rollout_id
            return result

        def update_weights(*args: Any, **kwargs: Any) -> Any:
            with self._or_stop("the engines took no new weights"):
                return update(*args, **kwargs)

        group.async_train, group.save_model, group.update_weights = async_train, save_model, update_weights

    def _generate(self, rollout_id: int) -> Any:
        """Starts a rollout, and right after it the save of the position in the games.

        slime may ask for the next rollout, which draws its own games, while this one is trained on.
        """
        played = self._manager.generate.remote(rollout_id)
        self.places[rollout_id] = self._manager.save.remote(rollout_id)
        return played

    def _ask_the_engines(self, call: str, *args: Any, **kwargs: Any) -> Any:
        done = getattr(self._manager, call).remote(*args, **kwargs)
        with self._or_stop("the engines do not answer"):
            self.module.ray.get(done)
        return done

    @contextmanager
    def _or_stop(self, why: str) -> Iterator[None]:
        """Turns an error within the block into RunStopped, once there is a step to save."""
        try:
            yield
        except Exception as error:
            if self.trained is None or isinstance(error, RunStopped):
                raise
            raise RunStopped(f"Training stops: {why} ({_last_line(error)}).") from error

    def _save(self, args: Any) -> None:
        if self.trained is None:
            return
        if self.trained != self.saved:
            if args.offload_rollout:  # the engines may hold the GPUs that saving needs
                with suppress(Exception):  # engines that are gone hold nothing
                    self.module.ray.get(self._manager.offload.remote())
            for group in self._groups:
                group.save_model(self.trained, force_sync=True)
        steps = self.trained + 1
        print(f"slim-rl: the {steps} steps trained so far are saved; the same command resumes from there.", flush=True)

    def _end(self, args: Any) -> None:
        self.module.ray.get(self._manager.dispose.remote())
        self.module.finish_tracking(args)


class _Watched:
    """slime's rollout manager, a Ray actor, with calls of these names redirected."""

    def __init__(self, manager: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._manager = manager
        self._calls = {name: SimpleNamespace(remote=call) for name, call in calls.items()}

    def __getattr__(self, name: str) -> Any:
        return self._calls[name] if name in self._calls else getattr(self._manager, name)


def _load(script: Path) -> ModuleType:
    """Imports the script, which does not train on import."""
    spec = importlib.util.spec_from_file_location("slime_train", script)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _message(stop: Exception) -> str:
    """Returns the exception's message without Ray's remote traceback."""
    return str(getattr(stop, "cause", None) or stop)


def _last_line(error: Exception) -> str:
    """Returns the last line of a remote traceback."""
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


def _divergence(error: Exception) -> str | None:
    """Returns a message if the error means that weights or gradient are not finite, else None."""
    if isinstance(error, Diverged):
        return _message(error)
    return "The gradient is not a finite number." if any(words in str(error) for words in _NOT_FINITE) else None


def main(arguments: Sequence[str] | None = None, ready: Callable[[], None] = lambda: None) -> int:
    """Runs slime's script. Returns 1 if a flag is unknown, or the run was stopped.

    Args:
        arguments: the script and slime's flags; None: those of this process.
        ready: waits, once slime is imported, for what training needs.
    """
    script, *flags = sys.argv[1:] if arguments is None else arguments
    sys.argv = [script, *flags]
    sys.path.insert(0, str(Path(script).parent))  # as if Python had been given the script
    training = TrainingScript(Path(script))
    ready()
    return training.run()


if __name__ == "__main__":
    raise SystemExit(main())
