"""Seeds from names: the same parts always give the same seed, on every machine and in every process."""

from __future__ import annotations

import hashlib


def seed_of(*parts: object) -> int:
    """A seed in [0, 2**31) drawn from `parts` (compared by their text)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 2**31
