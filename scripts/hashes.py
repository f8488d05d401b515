"""pip's report of an installation as requirements with hashes: `make hashes` writes requirements.hashed by it.

pip install --dry-run --ignore-installed --no-deps --report - -r constraints.txt | python scripts/hashes.py
"""

from __future__ import annotations

import json
import sys
from typing import Any


def lines(report: dict[str, Any]) -> list[str]:
    """NAME==VERSION --hash=sha256:... of each file in the report. SystemExit if pip does not say the hash of one."""
    hashes = []
    for item in report["install"]:
        name, version = (item["metadata"][key] for key in ("name", "version"))
        try:
            sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        except KeyError:
            raise SystemExit(
                f"pip names no hash of {name}: install it from an index or a file, not from a folder."
            ) from None
        hashes.append(f"{name}=={version} --hash=sha256:{sha256}")
    return sorted(hashes, key=str.lower)


if __name__ == "__main__":
    print("\n".join(lines(json.load(sys.stdin))))
