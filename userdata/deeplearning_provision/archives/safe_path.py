"""Names of archive members and objects that may become files below a folder."""

from deeplearning_provision.steps import WrongContentError

MOST_NAME_BYTES = 255


class UnsafeNameError(WrongContentError):
    """A name that would leave the folder, or cannot be a file's."""

    def __init__(self, cause: str) -> None:
        """Add the remedy to the rule and the name."""
        super().__init__(cause, "make the source without it")


def split_name(name: str) -> tuple[str, ...]:
    """
    Split the name of an archive's member into folders and file; empty for the root itself.

    Raises:
        UnsafeNameError: It is absolute, climbs with `..`, or has a part that cannot be a file's name.
    """
    if name.startswith("/"):
        raise UnsafeNameError(f"a name must not be absolute, got {name!r}")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    for part in parts:
        if part == "..":
            raise UnsafeNameError(f"a name must not hold '..', got {name!r}")
        if "\0" in part or len(part.encode("utf-8", "surrogateescape")) > MOST_NAME_BYTES:
            raise UnsafeNameError(f"a part of a name must be at most {MOST_NAME_BYTES} bytes without NUL, got {name!r}")
    return parts


def split_key(relative: str) -> tuple[str, ...]:
    """
    Split an object's key, without its prefix; a trailing slash means a folder.

    Raises:
        UnsafeNameError: It is no plain path: two keys must never mean the same file.
    """
    parts = split_name(relative)
    if "/".join(parts) != relative.removesuffix("/"):
        raise UnsafeNameError(f"a key must be a plain path below its prefix, got {relative!r}")
    return parts


def check_link(parts: tuple[str, ...], target: str) -> None:
    """
    Refuse a symbolic link that could lead out of the folder, also through other links.

    It may climb first and then descend: its folder is a real one, so it climbs to a real one, and every link on the way
    down obeys the same rule.

    Raises:
        UnsafeNameError: It is absolute, climbs too far, or climbs after it descended.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    if not target or target.startswith("/") or climbs > len(parts) - 1 or ".." in steps[climbs:]:
        raise UnsafeNameError(f"a link must stay inside, got {'/'.join(parts)!r} -> {target!r}")
