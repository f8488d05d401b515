"""Preregistered contrasts and the manifest of an experiment's logs.

The analysis reads both files, so that p values are corrected for the preregistered family: a contrast without data still counts.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from slim_rl.analysis.held_out import comparable
from slim_rl.config import Section, checked, load_section
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import FORMER
from slim_rl.errors import ConfigError
from slim_rl.formats import words
from slim_rl.lab import measures  # noqa: F401  (which contrasts may compare)
from slim_rl.lab.frontier import MOST

HELD_OUT = "held_out"  # condition of the runs' own evaluations: their partner, free play
Comparable = Annotated[str, BeforeValidator(lambda name: FORMER.get(str(name), name))]


class Outcome(Section):
    """Side of a comparison: an arm's runs on the games of a condition, before or after training, or the change."""

    arm: str
    when: Literal["before", "after", "change"] = "after"
    condition: str = HELD_OUT

    def __str__(self) -> str:
        parts: list[str] = [self.when] if self.when != "after" else []
        parts += [words(self.condition)] if self.condition != HELD_OUT else []
        return words(self.arm) + (f" ({', '.join(parts)})" if parts else "")


ArmOrOutcome = Annotated[Outcome, BeforeValidator(lambda value: {"arm": value} if isinstance(value, str) else value)]


class Contrast(Section):
    """Contrast: `a` minus `b`, a change against zero, or the slope over `doses`."""

    name: str
    measure: Comparable = Field(description="measure of slim_rl.dialogue.measures, or net_reward")
    a: ArmOrOutcome | None = None
    b: float | ArmOrOutcome | None = Field(None, description="outcome, or a number such as 0.6")
    doses: list[tuple[float, ArmOrOutcome]] = Field(
        [], description="(dose, outcome); the slope over them, per 1 of dose"
    )
    direction: Literal["more", "less", "same", "any"] = Field(description="prediction for a minus b")
    margin: float | None = Field(
        None, gt=0, description="with direction same: the smallest difference that would matter"
    )
    role: Literal["primary", "secondary"] = Field("secondary", description="primary: in the family corrected by Holm")

    @model_validator(mode="after")
    def _is_one_thing(self) -> "Contrast":
        if (self.a is None) == (not self.doses) or (self.b is not None and self.a is None):
            raise ValueError(f"'{self.name}' needs either a (and b), or doses")
        if self.doses and len({dose for dose, _ in self.doses}) < 3:
            raise ValueError(f"'{self.name}' needs three doses or more that differ")
        if (self.direction == "same") != (self.margin is not None):
            raise ValueError(f"'{self.name}': direction same and margin go together")
        if self.measure not in comparable():
            raise ValueError(f"'{self.name}': there is no measure {self.measure}; choose {', '.join(comparable())}")
        if self.a is not None and self.b is None and self.a.when != "change":
            raise ValueError(f"'{self.name}' compares with zero: give b, or when: change")
        return self

    @property
    def outcomes(self) -> list[Outcome]:
        sides = (self.a, self.b, *(outcome for _, outcome in self.doses))
        return [side for side in sides if isinstance(side, Outcome)]


class Contrasts(Section):
    """The preregistration file."""

    contrasts: list[Contrast]
    elsewhere: dict[str, tuple[float, float]] = Field(
        {},
        description="primary contrasts of this family that were computed elsewhere: p and minimum p, for Holm's correction",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "Contrasts":
        names = [contrast.name for contrast in self.contrasts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two contrasts are called '{twice[0]}'")
        return self


class Source(Section):
    """Logs of a condition, and their origin.

    With `each: [1, 2]` the entry expands to one source per value, which replaces {each} in name, logs and command: forced_{each}.
    """

    logs: list[str] = Field(min_length=1, description="files, folders or patterns such as logs/forced/*_forced2.jsonl")
    command: str = Field(description="command that wrote them")
    each: list[Any] = Field([])


def _expand_each(sources: dict[str, Source]) -> dict[str, Source]:
    """Returns the sources of a manifest, expanded to one per value of `each`."""
    return {
        name.replace("{each}", str(value)): Source(
            logs=[path.replace("{each}", str(value)) for path in source.logs],
            command=source.command.replace("{each}", str(value)),
        )
        for name, source in sources.items()
        for value in source.each or [""]
    }


class Manifest(Section):
    """Manifest of an experiment: its steps, its contrasts, and its logs by condition.

    The condition `held_out` has the logs of the training runs. Paths are relative to the working directory.
    """

    title: str
    arms: dict[str, dict[str, Any]] = Field({}, description="name: the keys that the arm changes in the config")
    steps: list[dict[str, Any]] = Field(
        [], description="commands that run the experiment, in order (`slim-rl lab run`)"
    )
    contrasts: Path | list[Contrast] | None = Field(
        None,
        description="contrasts, or the file of the contrasts; without any, the page has the results of each arm only",
    )
    sources: Annotated[dict[str, Source], AfterValidator(_expand_each)] = Field(
        {}, description="logs by condition; without any there is no page"
    )
    results: Path | None = Field(None, description="folder of the page; by default results, next to this file")
    commit: str = Field("", description="commit of the runs; by default that of their provenance.json")
    machine: str = ""
    treatment: str = "shy"
    measures: tuple[Comparable, ...] = Field(
        default_factory=lambda: tuple(measure.name for measure in shown_in("experiment", "experiment table")),
        description="columns of the tables; by default the measures marked for experiments",
    )
    prices: dict[str, float] = Field({}, description="arm: its question cost, which net_reward subtracts")
    most_questions: int = Field(MOST, ge=0, description="maximum number of questions per game for the simulated askers")
    text: Path | None = Field(
        None, description="hand-written Markdown: what it shows, what it cannot show, choices made after looking"
    )
    preregistered: bool = Field(
        True, description="false: the contrasts were chosen after runs had been seen; the page states this"
    )


def manifest_file(folder: Path) -> Path:
    """Returns the YAML file of an experiment, named by its folder or by the file."""
    return folder / "experiment.yaml" if folder.is_dir() else folder


def load_manifest(path: Path) -> tuple[Manifest, Contrasts]:
    """Reads a manifest and its contrasts. Raises ConfigError if either cannot be used."""
    manifest = load_section(path, Manifest)
    given, file = manifest.contrasts, path
    if isinstance(given, Path):
        file = given
        contrasts = load_section(file, Contrasts, f"{path} names it, and its paths are relative to the working folder")
    else:
        contrasts = checked(Contrasts, {"contrasts": given or []})
    named = {outcome.condition for contrast in contrasts.contrasts for outcome in contrast.outcomes}
    if unknown := sorted(named - manifest.sources.keys()):
        raise ConfigError(f"{file} compares the condition {unknown[0]}, for which {path} has no source. Add one.")
    if wrong := [name for name in manifest.measures if name not in comparable()]:
        raise ConfigError(f"{path}: {wrong[0]} in measures is not a measure. Choose from {', '.join(comparable())}.")
    return manifest, contrasts
