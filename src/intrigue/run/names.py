"""Names of run folders that are safe in any file system and can be decoded to the original text.

letters, digits and `_ . = -` stay; `/` becomes `+` (environment ids contain it); every other byte of the UTF-8 text
becomes `~XX`. A leading `.` or `-` is escaped `~XX` too (hidden files, options), as is the first letter of a name
some systems reserve (`CON`). Longer texts are cut and end in `~~` and 16 digits of their SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence

NAME_LIMIT = 120  # bytes; ours: leaves room below the usual 255 for temporary names around it
EMPTY = "~"
_PLAIN = frozenset((string.ascii_letters + string.digits + "_.=-").encode())
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def safe_name(text: str) -> str:
    """A file name for any text; different texts have different names."""
    escaped = [_escape(byte) for byte in text.encode("utf-8", "surrogatepass")]
    if not escaped:
        return EMPTY
    if text[0] in ".-" or _RESERVED.fullmatch(text):
        escaped[0] = f"~{ord(text[0]):02X}"
    name = "".join(escaped)
    if len(name) <= NAME_LIMIT:
        return name
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept = ""
    for piece in escaped:
        if len(kept) + len(piece) > NAME_LIMIT - len(mark) - 2:
            break
        kept += piece
    return f"{kept}~~{mark}"


def original_text(name: str) -> str:
    """The text a name was made from.

    Raises:
        ValueError: the name was cut, or `safe_name` never gives it.
    """
    if name == EMPTY:
        return ""
    pieces = re.findall(r"~[0-9A-F]{2}|[A-Za-z0-9_.=+-]", name)
    if "".join(pieces) != name:
        raise ValueError(f"{name!r} was shortened or is not a name that safe_name gives")
    raw = b"".join(bytes.fromhex(p[1:]) if p[0] == "~" else p.replace("+", "/").encode() for p in pieces)
    return raw.decode("utf-8", "surrogatepass")


def default_run_name(environment: str, reward: str, agent: str, seed: int) -> str:
    """The default name of a run, to which a counter is added: `{env}__{reward}__{agent}__{seed}`."""
    return safe_name(f"{environment}__{reward}__{agent}__{seed}")


def default_seed_folder_name(environment: str, reward: str, agent: str, seeds: Sequence[int]) -> str:
    """The default name of a folder of several seeds: `{env}__{reward}__{agent}__seeds-0-7`, or `…__seeds-0_3_5`."""
    first, last = seeds[0], seeds[-1]
    whole = list(seeds) == list(range(first, last + 1)) and len(seeds) > 1
    which = f"{first}-{last}" if whole else "_".join(map(str, seeds))
    return safe_name(f"{environment}__{reward}__{agent}__seeds-{which}")


def seed_folder_name(seed: int) -> str:
    """The name of one seed's run in such a folder."""
    return f"seed-{seed}"


def parse_seed_name(name: str) -> int | None:
    """The seed of a name that `seed_folder_name` gives; None for any other."""
    found = re.fullmatch(r"seed-(0|[1-9][0-9]*)", name, re.ASCII)
    return int(found[1]) if found else None


def _escape(byte: int) -> str:
    if byte == ord("/"):
        return "+"
    return chr(byte) if byte in _PLAIN else f"~{byte:02X}"
