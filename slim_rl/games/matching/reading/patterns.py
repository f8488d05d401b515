"""Long lists of wordings, written down as regular expressions.

an end of line is a `|`: the lines of a pattern are alternatives, or pieces of them
`<name>` in a pattern stands for the words of that name
"""

from __future__ import annotations

import re


class Vocabulary:
    """A table of patterns: in each row a name in the first column, and its pattern beside and below it. Rows named `<name>` are the
    words of the rows after them.

    >>> Vocabulary("<fruit> apples?\\n        pears?\\nasks    any (?:<fruit>)").rows
    [('<fruit>', 'apples?|pears?'), ('asks', 'any (?:apples?|pears?)')]
    """

    def __init__(self, text: str = "") -> None:
        self.rows: list[tuple[str, str]] = []
        for row in re.split(r"\n(?=\S)", text.strip()) if text else ():
            name, written = row.split(maxsplit=1)
            self.rows.append((name, self._joined(written)))

    def pattern(self, text: str) -> re.Pattern[str]:
        """The pattern that `text` writes down with these words."""
        return re.compile(self._joined(text))

    def _joined(self, text: str) -> str:
        joined = "|".join(line.strip() for line in text.strip().splitlines())
        for name, pattern in self.rows:
            joined = joined.replace(name, pattern) if name.startswith("<") else joined
        return joined


pattern = Vocabulary().pattern
