"""The version of the package, in the lowest layer, so that any module can record it."""

from pathlib import Path

RELEASE = "0.2.1.dev0"  # a version "X.Y.Z.dev0" is that of a state between releases, which its commit tells from others


def _commit(root: Path) -> str:
    """Return the commit that a checkout is at, from the files of git: no process is started. Empty for an installed package."""
    git = root / ".git"
    try:
        if git.is_file():  # a second worktree
            git = root / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head[:9]
        name = head.removeprefix("ref: ")
        if (git / "commondir").is_file():
            git = git / (git / "commondir").read_text().strip()
        if (git / name).is_file():
            return (git / name).read_text()[:9]
        packed = (git / "packed-refs").read_text().splitlines()
        return next((line[:9] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""


def _version() -> str:
    root = Path(__file__).resolve().parents[2]
    commit = _commit(root.parent) if root.name == "src" and ".dev" in RELEASE else ""
    return f"{RELEASE}+g{commit}" if commit else RELEASE


__version__ = _version()
