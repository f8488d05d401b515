"""Lint of docstrings, documentation, test names, changelog and commit subjects.

The counts of `lint_prose.json` may only fall: a rule with more violations than its count fails the check.

    python tools/lint_prose.py                    fails if a count rose, and prints the places
    python tools/lint_prose.py --list RULE        prints every place of one rule
    python tools/lint_prose.py --lower            writes the counts that fell
"""

import argparse
import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".json")
DOCUMENTS = ("*.md", "docs/**/*.md", "data/README.md", "environments/**/*.md")
RECENT = 30  # commits to check in a repository without a release tag

# First words that open a clause or stand for something unnamed, where a verb or a noun belongs.
NO_VERB = r"(?:What|Whether|Who|Whose|Where|How|Why|That|Those|Of|By|None|Its|Their|One|As|All|Every|Each)\b"
NO_IMPERATIVE = r"(?:An?|The|What|Who|Where|How|Whether|Of|On|With|No|One)\b"

_UNIT = (
    "game|question|dialogue|step|row|turn|line|seed|arm|run|process|model|token|message|seat|pair|trainer|command"
    "|measure|cell|suite|engine|reviewer|group|file|GPU|call|rollout|parameter|checkpoint"
)
_AMOUNT = (
    r"one|two|three|\d+|price|rows?|lines?|files?|questions?|pairs?|dialogues?|turns?|games?|mean|numbers?|value|chance"
    r"|messages|words|tokens|samples?|costs?|asked|told|updates?|calls?|dot|tables?|bar|seeds?"
)
# Phrases of private meaning: name of the rule -> the pattern that finds it. Players' own words are not linted.
PHRASES = {
    'put (use "forced")': r"questions? (?:(?:is|are|was|were) )?put\b|put for\b",
    'goes on (use "continues", "resumes")': r"(?:go|goes|going|went) on\b",
    'the start (use "initial policy", "launch")': r"(?:the|a|its|untrained|tiny) starts?\b",
    'promise (use "expected value")': r"promis(?:e|es|ed|ing)\b",
    'paid (use "rewarded", "credited")': r"(?:is|are|was|be) paid\b|pays\b|payments?\b",
    'tells (use "returns", "reports")': r"(?:is|are|was|were|be) told\b|tells\b",
    'says (use "prints", "states")': r"(?:is|are|was) said\b|it says\b",
    'is no X (use "invalid", "missing")': r"(?:that|which|what|who) (?:is|are|has|have) (?:no|none)\b|(?:is|are) none\b",
    'whoever (use "anyone who")': r"whoever\b|(?:for|of|by) who\b",
    'of one\'s own (use "custom")': r"one'?s own\b|of (?:your|the user'?s) own\b",
    'anew, so many, but for, beside (use "again", "n", "except", "next to")': r"(?:anew|so many|but for|beside|hardly|chief)\b",
    'torn, called off (use "incomplete", "cancelled")': r"whole or not\b|appears? whole\b|torn\b|call(?:ed|s)? off\b"
    r"|(?:stands?|stood) in for\b",
    'a for each (use "per")': rf"(?:{_AMOUNT}) an? (?:{_UNIT})\b",
}
DOCSTRING_FIRST = "docstring that starts with a clause or pronoun"
DOCSTRING_LONG = "first line of a docstring over 20 words"
ARGS_OF = "Args entry that starts with of"
SENTENCE = "sentence over 25 words"
SEMICOLONS = "sentence with two semicolons"
TEST_NAME = "test name over 60 characters"
BULLET = "changelog bullet over 30 words"
SUBJECT_LONG = "commit subject over 72 characters"
SUBJECT_FIRST = "commit subject without an imperative"


class Finding(NamedTuple):
    rule: str
    where: str
    text: str


def in_docstring(text: str, where: str) -> Iterator[Finding]:
    """Yields the violations in one docstring."""
    first = text.split("\n", 1)[0]
    if re.match(NO_VERB, text):
        yield Finding(DOCSTRING_FIRST, where, first)
    if len(first.split()) > 20:
        yield Finding(DOCSTRING_LONG, where, first)
    for entry in re.finditer(r"^[ \t]+[\w, ]+: of (?:an?|the|each|what|its)?\b.*", text, re.M):
        yield Finding(ARGS_OF, where, entry[0].strip())
    yield from phrases(text, where)


def phrases(text: str, where: str) -> Iterator[Finding]:
    """Yields the phrases of PHRASES in a text, each with its surroundings."""
    for rule, pattern in PHRASES.items():
        for match in re.finditer(rf"\b(?:{pattern})", text, re.I):
            yield Finding(rule, where, " ".join(text[max(0, match.start() - 40) : match.end() + 40].split()))


def sentences(markdown: str) -> Iterator[str]:
    """Yields the sentences of a page: no code, headings, tables, pictures or targets of links."""
    prose = "\n".join(line for line in markdown.split("\n") if not line.lstrip().startswith(("|", "#", "!")))
    for block in re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. ", re.sub(r"\]\([^)]*\)", "]", prose)):
        yield from re.split(r"(?<=[.!?]) +(?=[A-Z`*\[(0-9])", " ".join(block.split()))


def in_document(markdown: str, where: str) -> Iterator[Finding]:
    """Yields the violations in one page of documentation."""
    markdown = re.sub(r"^( *)```.*?^\1```", "", markdown, flags=re.M | re.S)
    for sentence in sentences(markdown):
        if len(sentence.split()) > 25:
            yield Finding(SENTENCE, where, sentence[:120])
        if sentence.count(";") > 1:
            yield Finding(SEMICOLONS, where, sentence[:120])
    if Path(where).stem != "glossary":
        yield from phrases(markdown, where)


def in_changelog(markdown: str, where: str) -> Iterator[Finding]:
    """Yields the bullets of the changelog that are too long."""
    for bullet in re.split(r"^- ", markdown, flags=re.M)[1:]:
        if len(re.split(r"\n\s*\n", bullet, maxsplit=1)[0].split()) > 30:
            yield Finding(BULLET, where, bullet[:80])


def in_test(name: str, where: str) -> Iterator[Finding]:
    """Yields the name of a test if it is too long."""
    if len(name) > 60:
        yield Finding(TEST_NAME, where, name)


def in_subject(subject: str, where: str) -> Iterator[Finding]:
    """Yields the violations in the first line of a commit."""
    if len(subject) > 72:
        yield Finding(SUBJECT_LONG, where, subject)
    if re.match(NO_IMPERATIVE, subject):
        yield Finding(SUBJECT_FIRST, where, subject)


def subjects(root: Path) -> list[str]:
    """Returns the commit subjects since the last release tag, or the last RECENT; none without git."""

    def git(*words: str) -> str:
        try:
            return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            return ""

    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*").strip()
    return git("log", "--no-merges", "--format=%s", *([f"{tag}..HEAD"] if tag else [f"-{RECENT}"])).splitlines()


def findings(root: Path) -> Iterator[Finding]:
    """Yields every violation in a checkout."""
    for path in sorted(root.glob("slim_rl/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(root)}:{getattr(node, 'lineno', 1)}"
                yield from in_docstring(ast.get_docstring(node) or "", where)
    for path in sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)}):
        yield from in_document(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    yield from in_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), "CHANGELOG.md")
    for path in sorted(root.glob("tests/**/*.py")):
        for match in re.finditer(r"def (test_\w+)", path.read_text(encoding="utf-8")):
            yield from in_test(match[1], str(path.relative_to(root)))
    for subject in subjects(root):
        yield from in_subject(subject, "git log")


def compared(counted: list[Finding], allowed: dict[str, int]) -> tuple[list[str], list[str]]:
    """Compares the violations with the counts allowed.

    Returns:
        The lines that report counts which rose, with their places, and the lines that report counts which fell.
    """
    counts, rose, fell = Counter(finding.rule for finding in counted), [], []
    for rule in sorted({*counts, *allowed}):
        if counts[rule] > allowed.get(rule, 0):
            rose.append(f"{rule}: {counts[rule]}, allowed {allowed.get(rule, 0)}")
            rose += [f"    {finding.where}: {finding.text}" for finding in counted if finding.rule == rule]
        elif counts[rule] < allowed.get(rule, 0):
            fell.append(f"{rule}: {counts[rule]}, allowed {allowed[rule]}")
    return rose, fell


def main(arguments: list[str] | None = None, root: Path = ROOT, table: Path = TABLE) -> int:
    """Runs the lint; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check the project's prose.")
    parser.add_argument("--list", metavar="RULE", help="print every place of the rules whose name contains RULE")
    parser.add_argument("--lower", action="store_true", help="write the counts that fell")
    options = parser.parse_args(arguments)
    counted = list(findings(root))
    if options.list:
        print("\n".join(f"{finding.where}: {finding.text}" for finding in counted if options.list in finding.rule))
        return 0
    allowed: dict[str, int] = json.loads(table.read_text(encoding="utf-8"))
    rose, fell = compared(counted, allowed)
    if options.lower:
        counts = Counter(finding.rule for finding in counted)
        lower = {rule: min(counts[rule], number) for rule, number in allowed.items() if counts[rule]}
        table.write_text(json.dumps(lower, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    elif fell:
        print("Lower the table with `python tools/lint_prose.py --lower`:", *fell, sep="\n")
    if rose:
        print("More violations than allowed:", *rose, sep="\n")
    return 1 if rose else 0


if __name__ == "__main__":
    raise SystemExit(main())
