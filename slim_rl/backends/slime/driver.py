"""What runs where slime can be imported: its own parsers over the flags, before a run; then its own training script.

    python -m slim_rl.backends.slime.driver --check [slime's flags]
    python -m slim_rl.backends.slime.driver SLIME_DIR/train.py [slime's flags]

    a flag that slime would ignore is an error: it parses a command line several times over, each parser ignoring what it does not know
    no step that was paid for is lost when the run is stopped
    a checkpoint is whole only with the place in the games where the next step begins, whatever is played meanwhile
    the first rollouts are played by the policy, and not by the reference of its KL term
    a policy that has diverged ends the run, and nothing is saved after it

slime saves every ``--save-interval`` steps, and whatever a rollout raises ends the run there and then. When the partner's budget
is spent, or its endpoint or the engines stay down, the log functions raise `RunStopped` (see `metrics`) before the step in hand is trained
on; and so does this where the engines do not answer. Then this saves the step trained last, by the same calls as the script, and ends
with exit code 1. The script itself is slime's, unchanged: what it gets from `create_training_models` and `create_rollout_manager` is only
watched.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from slim_rl.backends import say
from slim_rl.backends.slime.parsers import flags_noted, known_flags, refused
from slim_rl.errors import Diverged, RunStopped

# Megatron's words, before it takes a gradient into account (`check_for_nan_in_loss_and_grad`, which slime leaves on)
_NOT_FINITE = ("found NaN in local grad norm", "found Inf in local grad norm")


# slime's arguments that load a second set of weights into the model: a reference, a teacher, the actor of an earlier step
_SECOND_WEIGHTS = ("use_kl_loss", "kl_coef", "use_opd", "keep_old_actor")
_OF_ENGINES = ("offload", "onload_weights", "onload_kv")  # calls of its rollout manager that the engines must answer


class TrainingScript:
    """slime's train.py or train_async.py, imported.

    Attributes:
        trained: the step trained last; None before there is one.
        saved: the step saved last.
        places: of a rollout, the call that saves where in the games the next one begins.
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
        """Trains to the end. Returns the exit code: 1 if the run was stopped, or a flag is unknown or repeated."""
        with flags_noted() as known:
            args = self.module.parse_args()
        if refused(sys.argv[1:], known):  # a launcher without a GPU could not ask slime's parsers
            return 1
        try:
            self.module.train(args)
        except RunStopped as stop:  # out of one of Ray's actors: its error is an instance of the cause's class too
            say(_sentence(stop))
            self._save(args)
            self._end(args)
            return 1
        except Exception as error:
            if (found := _divergence(error)) is None:
                raise
            say(
                f"Training stops; the last step that began is {self.trained or 0}. {found} Nothing is saved now; lower "
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
        """Has the model hold the weights that are trained. slime loads those of a reference after them, and switches back only where it
        offloads: else the first rollouts of a run that goes on would be played with the reference's (docs/upstream.md).
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
            # Before the model: a checkpoint counts once Megatron has numbered it, and slime writes this after it. A run that ended in
            # between would go on with the first games over again.
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
        """A rollout, and right behind it its place in the games: before the next one, which slime may ask for while this one is trained on,
        has drawn its own.
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
        """What is raised here stops the run, once there is a step to save."""
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
            if args.offload_rollout:  # the engines may hold the GPUs, which saving needs
                with suppress(Exception):  # those that are gone hold nothing
                    self.module.ray.get(self._manager.offload.remote())
            for group in self._groups:
                group.save_model(self.trained, force_sync=True)
        steps = self.trained + 1
        print(f"slim-rl: the {steps} steps trained so far are saved; the same command goes on from there.", flush=True)

    def _end(self, args: Any) -> None:
        self.module.ray.get(self._manager.dispose.remote())
        self.module.finish_tracking(args)


class _Watched:
    """slime's rollout manager, a Ray actor, as its script is given it: calls of these names go another way."""

    def __init__(self, manager: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._manager = manager
        self._calls = {name: SimpleNamespace(remote=call) for name, call in calls.items()}

    def __getattr__(self, name: str) -> Any:
        return self._calls[name] if name in self._calls else getattr(self._manager, name)


def _load(script: Path) -> ModuleType:
    """The script as a module, which does not train when it is imported."""
    spec = importlib.util.spec_from_file_location("slime_train", script)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sentence(stop: Exception) -> str:
    """Its own words: Ray's text holds a remote traceback too."""
    return str(getattr(stop, "cause", None) or stop)


def _last_line(error: Exception) -> str:
    """What a remote traceback ends with."""
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


def _divergence(error: Exception) -> str | None:
    """What of the policy is no finite number; None if the error is another."""
    if isinstance(error, Diverged):
        return _sentence(error)
    return "The gradient is not a finite number." if any(words in str(error) for words in _NOT_FINITE) else None


def main(words: Sequence[str] | None = None, ready: Callable[[], None] = lambda: None) -> int:
    """Entry point. Returns 1 if a flag is unknown or repeated, or the run was stopped.

    Args:
        words: of the command line; None: this process's.
        ready: waits, once slime is imported, for what it needs to train.
    """
    script, *flags = sys.argv[1:] if words is None else words
    if script == "--check":
        return int(refused(flags, known_flags(flags)))
    # as if Python had been given the script
    sys.argv, sys.path[0] = [script, *flags], str(Path(script).parent)
    training = TrainingScript(Path(script))
    ready()
    return training.run()


if __name__ == "__main__":
    raise SystemExit(main())
