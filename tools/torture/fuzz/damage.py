"""What happens to the bytes of a file: flipped bits, cuts, lost, repeated and foreign pieces."""

import random

from hypothesis import strategies as st

KINDS = ("flip", "byte", "cut", "drop", "insert", "repeat", "zeros", "swap", "append", "empty")
SNIPPETS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b'"', b",", b"nan", b"-1", b"1e400", b"\xed\xa0\x80", b"{",
    b"PK\3\4",
)  # fmt: skip


def damaged(content: bytes, kind: str, place: int, random_state: random.Random) -> bytes:
    """Return `content` with one damage at byte `place` (modulo its length)."""
    if not content:
        return content
    place %= len(content)
    length = random_state.choice((1, 1, 2, 4, 16, 200))
    before, after = content[:place], content[place:]
    changed = {
        "flip": before + bytes([after[0] ^ (1 << random_state.randrange(8))]) + after[1:],
        "byte": before + bytes([random_state.randrange(256)]) + after[1:], "cut": before,
        "drop": before + after[length:], "insert": before + random_state.choice(SNIPPETS) + after,
        "repeat": before + after[:length] + after, "zeros": before + bytes(len(after[:length])) + after[length:],
        "swap": before + after[length : 2 * length] + after[:length] + after[2 * length :],
        "append": content + random_state.choice(SNIPPETS), "empty": b"",
    }  # fmt: skip
    return changed[kind]


@st.composite
def damages(draw: st.DrawFn, content: bytes, *, most: int = 2) -> tuple[bytes, str]:
    said = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from((*KINDS[:2], *KINDS)))  # single bits and bytes twice as often
        place = draw(st.integers(0, max(0, len(content) - 1)))
        content = damaged(content, kind, place, random.Random(draw(st.integers(0, 2**32))))
        said.append(f"{kind} at byte {place}")
    return content, ", ".join(said)
