"""A config's YAML, and the changes that a command line makes to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from yaml.error import MarkedYAMLError

from slim_rl.config.section import Section
from slim_rl.config.sentences import sentence_of
from slim_rl.errors import ConfigError

PATH = "give the path of a YAML file"
S = TypeVar("S", bound=Section)


MOST_VALUES = 100_000  # of a document, each alias counted as what it stands for


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values in a node; one that holds itself counts once within itself."""
    if id(node) not in known:
        known[id(node)] = 1
        inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        if not isinstance(node, yaml.ScalarNode):
            known[id(node)] += sum(_size(part, known) for part in inner)
    return known[id(node)]


class _Loader(yaml.SafeLoader):
    """Loader of YAML 1.2's plain values, which refuses a repeated key.

    no, on, 2026-11-25 and 0123 are strings, which a key of another type accepts. Of a repeated key YAML's own loader takes the last, and the
    settings below the first are lost.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own way to have none of the base's)

    def get_single_node(self) -> yaml.Node | None:
        """Returns the document. Refuses one whose aliases stand for more values than any config has.

        Each such value could fill an error message.
        """
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"its aliases (*name) stand for more than {MOST_VALUES:,} values")
        return node  # type: ignore[no-any-return]

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise MarkedYAMLError(
                        problem=f"'{key.value}' stands twice; remove one,", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


for _tag, _form, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", list("-+0123456789")),
    (
        "float",
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_form})$"), _first)


def load_section(path: str | Path, section: type[S], hint: str = PATH) -> S:
    """Reads a YAML file that holds one `section`. Raises ConfigError, as `load_config` does; `hint` as for `read_yaml`."""
    data = read_yaml(path, hint)
    try:
        return section.model_validate({} if data is None else data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {sentence_of(error, section)}") from error


def read_yaml(path: str | Path, hint: str = PATH) -> Any:
    """Returns the content of a YAML file. Raises ConfigError if it cannot be read.

    Args:
        hint: what to do if the file is missing.
    """
    path = Path(path)
    try:
        return _Loader(path.read_text(encoding="utf-8-sig")).get_single_data()
    except OSError as error:
        raise ConfigError(f"Cannot read the config {path}: {error.strerror}; {hint}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8; give the path of a YAML file.") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: a number or date that YAML reads and Python does not
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be a config; give the path of another file.") from error


def overridden(
    data: Mapping[str, Any], overrides: Sequence[str], sections: Collection[str] = (), texts: Mapping[str, bool] = {}
) -> dict[str, Any]:
    """Returns a copy with overrides such as ``partner.kind=mute``.

    Args:
        sections: names of sections. A mapping changes the keys that it names, and an empty one empties them; any other value is replaced.
        texts: key -> whether null is a value too, for keys whose value is text as it is written, whatever YAML makes of it.

    Raises:
        ConfigError: an override is malformed.
        RecursionError: the data contains itself.
    """
    tree = _copy(data)
    for override in overrides:
        _apply(tree, override, sections, texts)
    return tree


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy; a RecursionError for YAML that holds itself, which `deepcopy` would take."""
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def _apply(tree: dict[str, Any], override: str, sections: Collection[str], texts: Mapping[str, bool]) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"The override '{override}' is not of the form key=value, for example partner.kind=mute.")
    *parents, last = key.split(".")
    for parent in parents:
        child = tree[parent] = {} if tree.get(parent) is None else tree[parent]  # null: a section that is left out
        if not isinstance(child, dict):
            raise ConfigError(f"The override '{override}' goes through '{parent}', which is not a section.")
        tree = child
    try:
        value = _Loader(text).get_single_data()
        if key in texts and not isinstance(value, str | list | dict) and not (value is None and texts[key]):
            value = text.strip()
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"The override '{override}' has a value that is not valid YAML.") from error
    tree[last] = _merged(tree.get(last), value, key, sections)


def _merged(old: Any, new: Any, key: str, sections: Collection[str]) -> Any:
    if key not in sections or not new or not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {name: _merged(old.get(name), value, f"{key}.{name}", sections) for name, value in new.items()}
