"""Pages from the templates in `page/`, which escape all they are given but `Markup`; nothing on a page is fetched."""

from __future__ import annotations

import base64
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from slim_rl.formats import words

_TEMPLATES = Environment(
    loader=PackageLoader("slim_rl.analysis", "page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values)


def picture(name: str, svg: str, caption: str, *, wide: bool = True, narrow: str = "") -> dict[str, Any]:
    """A figure as the templates show it. `narrow`: its SVG for narrow screens, where it has one."""
    return {
        "alt": words(name),
        "wide": wide,
        "source": _address(svg),
        "narrow": _address(narrow) if narrow else "",
        "caption": caption,
    }


def _address(svg: str) -> str:
    """The figure as an address that a page can hold."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
