"""What an experiment's contrasts are, written down before it is run, and what its logs are. The analysis reads both files, so that
the family that p values are corrected in is the one that was written down: a contrast without data still counts in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from slim_rl.analysis.plays import Outcome, comparable
from slim_rl.config import Section, load_section
from slim_rl.dialogue.measures import RENAMED, shown_in
from slim_rl.errors import ConfigError
from slim_rl.lab import gap  # noqa: F401  whose measures can be compared
from slim_rl.lab.frontier import MOST

Comparable = Annotated[str, BeforeValidator(lambda name: RENAMED.get(name, name))]


ArmOrOutcome = Annotated[Outcome, BeforeValidator(lambda value: {"arm": value} if isinstance(value, str) else value)]


class Contrast(Section):
    """One contrast: `a` less `b`, a change against zero, or the slope over `doses`."""

    name: str
    measure: Comparable = Field(description="a measure of slim_rl.dialogue.measures, or net_reward")
    a: ArmOrOutcome | None = None
    b: float | ArmOrOutcome | None = Field(None, description="an outcome, or a number such as 0.6")
    doses: list[tuple[float, ArmOrOutcome]] = Field(
        [], description="(dose, outcome); the slope over them, per 1 of dose"
    )
    reaches: float | None = Field(None, description="compare the first training step at which `measure` reaches this")
    correlated_with: Comparable | None = Field(
        None,
        description="compare the correlation of `measure` with this one over the games of each run, 0 where either is constant",
    )
    direction: Literal["more", "less", "same", "any"] = Field(description="what the hypothesis predicts of a less b")
    margin: float | None = Field(None, gt=0, description="with direction same: what would be too small to matter")
    role: Literal["primary", "secondary"] = Field("secondary", description="primary: one of the family under Holm")

    @model_validator(mode="after")
    def _is_one_thing(self) -> Contrast:
        if (self.a is None) == (not self.doses) or (self.b is not None and self.a is None):
            raise ValueError(f"'{self.name}' needs either a (and b), or doses")
        if self.doses and len({dose for dose, _ in self.doses}) < 3:
            raise ValueError(f"'{self.name}' needs three doses or more that differ")
        if (self.direction == "same") != (self.margin is not None):
            raise ValueError(f"'{self.name}': direction same and margin go together")
        if wrong := {self.measure, self.correlated_with} - {None, *comparable()}:
            raise ValueError(f"'{self.name}': there is no measure {wrong.pop()}; choose {', '.join(comparable())}")
        if self.correlated_with is not None and self.reaches is not None:
            raise ValueError(f"'{self.name}': reaches and correlated_with do not go together")
        if self.a is not None and self.b is None and self.a.when != "change":
            raise ValueError(f"'{self.name}' compares with zero: give b, or when: change")
        return self

    @property
    def outcomes(self) -> list[Outcome]:
        sides = (self.a, self.b, *(outcome for _, outcome in self.doses))
        return [side for side in sides if isinstance(side, Outcome)]


class Contrasts(Section):
    """The preregistration file."""

    contrasts: list[Contrast] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Contrasts:
        names = [contrast.name for contrast in self.contrasts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two contrasts are called '{twice[0]}'")
        return self


NONE = Contrasts.model_construct(contrasts=[])  # of an experiment that has none


class Source(Section):
    """Logs, and where they come from. What is empty is the manifest's. With `each: [1, 2]` it stands for one source a value, of which
    {each} in its name, logs and command is one: forced_{each}.
    """

    logs: list[str] = Field(min_length=1, description="files, folders or patterns such as logs/forced/*_forced2.jsonl")
    command: str = Field(description="that wrote them")
    commit: str = ""
    machine: str = ""


def _one_by_one(sources: Any) -> Any:
    """The sources of a manifest as it is written, one a value of their `each`."""
    if not isinstance(sources, dict):
        return sources
    found: dict[Any, Any] = {}
    for name, source in sources.items():
        each = source.get("each") if isinstance(source, dict) else None
        if not isinstance(each, list):
            found[name] = source
            continue
        for value in map(str, each):
            logs, command = source.get("logs", []), str(source.get("command", ""))
            found[str(name).replace("{each}", value)] = {
                **{key: told for key, told in source.items() if key != "each"},
                "logs": [str(log).replace("{each}", value) for log in logs],
                "command": command.replace("{each}", value),
            }
    return found


class Manifest(Section):
    """An experiment's logs by condition; `held_out` is that of the training runs. Paths are relative to the working directory."""

    title: str
    arms: dict[str, dict[str, Any]] = Field({}, description="name: the keys that the arm changes in the config")
    steps: list[dict[str, Any]] = Field([], description="commands that make the experiment, in order (`steps`)")
    contrasts: Path | list[Contrast] | None = Field(
        None, description="contrasts, or the file that has them; without them the page tells what each arm did"
    )
    sources: Annotated[dict[str, Source], BeforeValidator(_one_by_one)] = Field(
        {}, description="logs by condition; without any there is no page"
    )
    results: Path | None = Field(None, description="folder of the page; by default results, beside this file")
    keep: bool = Field(False, description="runs whose logs are gone stay on the page")
    commit: str = Field("", description="of the runs; what is left out is read from their provenance.json")
    machine: str = ""
    treatment: str = "shy"
    measures: tuple[Comparable, ...] = Field(
        default_factory=lambda: tuple(measure.name for measure in shown_in("experiment", "experiment table")),
        description="the columns of its tables; by default what measures say of themselves",
    )
    prices: dict[str, float] = Field({}, description="arm: what a question cost it; net_reward is reward less that")
    most_questions: int = Field(
        MOST, ge=0, description="that its games allow: the ideal and the random asker ask no more"
    )
    text: Path | None = Field(
        None, description="Markdown by hand: what it shows, what it cannot, choices made after looking"
    )
    preregistered: bool = Field(
        True, description="false: the contrasts were chosen after runs had been seen, and the page says so"
    )
    window: int = Field(5, ge=1, description="steps that are averaged to say when a measure was reached")

    @property
    def made(self) -> list[str]:
        """By what commit and on what machine the runs were made, if it says so."""
        said = [f"commit {self.commit}" if self.commit else "", self.machine]
        return ["; ".join(filter(None, said))] if any(said) else []

    def source(self, name: str) -> list[str]:
        """A source's command, commit and machine, those that are known."""
        found = self.sources[name]
        commit = found.commit or self.commit
        return list(filter(None, [found.command, commit and f"commit {commit}", found.machine or self.machine]))


def manifest_file(folder: Path) -> Path:
    """Returns the YAML file of an experiment that is named by its folder or by that file."""
    return folder / "experiment.yaml" if folder.is_dir() else folder


def load_manifest(path: Path) -> tuple[Manifest, Contrasts]:
    """Reads a manifest and its contrasts. Raises ConfigError if either cannot be used."""
    manifest = load_section(path, Manifest)
    contrasts = NONE
    if isinstance(manifest.contrasts, Path):
        elsewhere = f"{path} names it, and its paths are read from the folder that the command is run in"
        contrasts = load_section(manifest.contrasts, Contrasts, elsewhere)
    elif manifest.contrasts:
        contrasts = Contrasts(contrasts=manifest.contrasts)
    named = {outcome.condition for contrast in contrasts.contrasts for outcome in contrast.outcomes}
    if unknown := sorted(named - manifest.sources.keys()):
        raise ConfigError(
            f"{manifest.contrasts} compares the condition {unknown[0]}, which {path} has no source for; add it to sources."
        )
    if wrong := [name for name in manifest.measures if name not in comparable()]:
        raise ConfigError(f"{path}: there is no measure {wrong[0]}; choose {', '.join(comparable())}.")
    return manifest, contrasts
