"""Seeds from names: equal parts give equal seeds on every machine and in every process."""

import hashlib
import random
from collections.abc import Mapping


def seed_of(*parts: object) -> int:
    """Returns a seed in [0, 2**31) that depends on the texts of `parts` alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 2**31


def drawn(shares: Mapping[str, float], *parts: object) -> str:
    """Returns a name, drawn by the names' shares. Equal parts give the same one, in any order of the names."""
    names = sorted(shares)
    return random.Random(seed_of(*parts)).choices(names, [shares[name] for name in names])[0]
