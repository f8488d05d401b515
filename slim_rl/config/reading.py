"""YAML of a config, changes by a command line, and one sentence on what is wrong."""

import copy
import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.error import MarkedYAMLError

from slim_rl.config.section import Section, meant
from slim_rl.errors import ConfigError, did_you_mean
from slim_rl.formats import without_passwords

PATH = "give the path of a YAML file"
S = TypeVar("S", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """Loader of YAML 1.2's plain values, which refuses a repeated key.

    no, on, 2026-11-25 and 0123 are strings, which a key of another type accepts. Of a repeated key YAML's own loader takes the last, and the
    settings below the first are lost.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own way to have none of the base's)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise MarkedYAMLError(problem=f"'{key.value}' stands twice; remove one,", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
        return node


for _tag, _form, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", list("-+0123456789")),
    (
        "float",
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]{1,3}[eE][-+]?[0-9]{1,2}|[-+]?\.inf|\.nan",
        list("-+.0123456789"),
    ),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_form})$"), _first)


def read_yaml(path: str | Path, hint: str = PATH) -> Any:
    """Returns the content of a YAML file. Raises ConfigError if it cannot be read.

    Args:
        hint: what to do if the file is missing.
    """
    try:
        return _Loader(Path(path).read_text(encoding="utf-8-sig")).get_single_data()
    except OSError as error:
        raise ConfigError(f"Cannot read the config {path}: {error.strerror}; {hint}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8; give the path of a YAML file.") from error
    # ValueError: a number that YAML reads and Python does not
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error


def load_section(path: str | Path, section: type[Section], hint: str = PATH) -> Any:
    """Reads a YAML file that holds one `section`. Raises ConfigError, as `load_config` does; `hint` as for `read_yaml`."""
    data = read_yaml(path, hint)
    try:
        return checked(section, {} if data is None else data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def overridden(data: Mapping[str, Any], overrides: Sequence[str], sections: Collection[str] = ()) -> dict[str, Any]:
    """Returns a copy with overrides such as ``partner.kind=mute``.

    Args:
        sections: names of sections. A mapping changes the keys that it names, and an empty one empties them; any other value is replaced.

    Raises:
        ConfigError: an override is malformed.
    """
    tree = copy.deepcopy(dict(data))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"The override '{override}' is not of the form key=value, for example partner.kind=mute.")
        *parents, last = key.split(".")
        section = tree
        for parent in parents:
            if section.get(parent) is None:  # null: a section that is left out
                section[parent] = {}
            section = section[parent]
            if not isinstance(section, dict):
                raise ConfigError(f"The override '{override}' goes through '{parent}', which is not a section.")
        try:
            value = _Loader(text).get_single_data()
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(f"The override '{override}' has a value that is not valid YAML.") from error
        section[last] = _merged(section.get(last), value, key, sections)
    return tree


def _merged(old: Any, new: Any, key: str, sections: Collection[str]) -> Any:
    if key not in sections or not new or not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {name: _merged(old.get(name), value, f"{key}.{name}", sections) for name, value in new.items()}


def checked(model: type[S], value: Any, section: str = "") -> S:
    """Returns a section, validated. Raises ConfigError with one sentence.

    Args:
        section: dotted name of the section in the config.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(_sentence(error, model, f"{section}." if section else "")) from error


_MOST = 4  # faults in one sentence
# How pydantic names one of a value's several types, between the value's key and what is wrong within it.
_TYPE = re.compile(r"lax-or-strict\[.*\]|bool|int|float|str|constrained-\w+|function-\w+\[.*\]|\w+\[.*\]")


def _sentence(error: ValidationError, model: type[BaseModel], prefix: str) -> str:
    """Returns one sentence on all that is wrong: where, what, and what was probably meant."""
    said: dict[str, list[str]] = {}
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"] if not _TYPE.fullmatch(str(part)))
        where, value = f"{prefix}{name}".removesuffix("."), item["input"]
        if item["type"] == "extra_forbidden":
            said.setdefault("", []).append(
                f"'{_short(where)}' is not a key slim_rl knows; {meant(_short(name), model, prefix)}"
            )
        elif isinstance(value, dict) and item["type"] == "value_error":  # a validator of a whole section names its keys
            said.setdefault(where if name else "", []).append(item["msg"].removeprefix("Value error, "))
        else:
            choices = re.findall("'([^']+)'", item["msg"]) if item["type"] == "literal_error" else ()
            nearest = did_you_mean(_short(value), choices) if isinstance(value, str) else ""
            got = f" (got {_short(reprlib.repr(value))}){nearest}"
            before = f"{said[where].pop().partition(' (got')[0]} or " if said.get(where) else ""  # of another type
            message = item["msg"].removeprefix("Value error, ")
            said.setdefault(where, []).append(before + message.removeprefix("Input should be " if before else "") + got)
    parts = [f"{where}: {each}" if where else each for where, several in said.items() for each in several]
    more = f"; and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    sentence = without_passwords("; ".join(parts[:_MOST]) + more)
    return sentence if sentence.endswith("?") else f"{sentence}."


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]} ..."
