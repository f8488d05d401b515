"""The site has the repository's layout, so that every relative link of a page means the same there as in a checkout.

pages: README.md, SECURITY.md, CHANGELOG.md, every page of docs/, and every page that they link to, directly or not
other files: those that a page links to, and docs/assets; copied unchanged
dead links: mkdocs itself reports them
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\]\(([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    docs = [file for file in files if file.src_dir == config.docs_dir]
    for file in docs:
        files.remove(file)
    guides = [f"docs/{file.src_uri}" for file in docs if file.is_documentation_page()]
    assets = [f"docs/{file.src_uri}" for file in docs if file.src_uri.startswith("assets/")]
    for path in [*assets, *_linked(root, ["README.md", "SECURITY.md", "CHANGELOG.md", *guides])]:
        files.append(File(path, str(root), config.site_dir, config.use_directory_urls))
    return files


def _linked(root: Path, paths: list[str]) -> Iterator[str]:
    """Yields these files, and those that they link to."""
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        if path.endswith(".md"):
            for link in _LINK.findall((root / path).read_text(encoding="utf-8")):
                target = (root / path).parent.joinpath(link).resolve()
                if target.is_file() and target.is_relative_to(root.resolve()):
                    paths.append(target.relative_to(root.resolve()).as_posix())
