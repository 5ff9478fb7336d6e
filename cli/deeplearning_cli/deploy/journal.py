"""Journal of a deployment to several regions, from which it goes on after an interruption."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from deeplearning_cli.errors import UnavailableError

Key: TypeAlias = tuple[str, str, str]
"""Account, region and name of a stack."""


class Stage(str, Enum):
    """Stage of a region."""

    ASKING = "asking"  # `cdk deploy` runs, or ran when the command was killed
    LEAVING = "leaving"  # The stack is being deleted
    REFUSED = "refused"  # Too little capacity, and no stack any more
    LAUNCHED = "launched"  # The stack is complete
    FAILED = "failed"  # For a cause that other regions share; the stack stays


@dataclass(frozen=True, kw_only=True)
class Entry:
    """
    One region in the journal.

    Attributes:
        account: The account.
        region: The region.
        stack: Name of the stack.
        stage: The region's stage.
        existing: Id of the stack that was there before `cdk deploy` began, and is never deleted. Default: there was
            none.
        created: Id of the stack that `cdk deploy` created and that is being deleted. Default: none is.
        reason: Reason of a refusal or a failure. Default: neither.
        at: Time of the entry, UTC. Default: it is not written yet.
    """

    account: str
    region: str
    stack: str
    stage: Stage
    existing: str = ""
    created: str = ""
    reason: str = ""
    at: str = ""

    @property
    def key(self) -> Key:
        """Place of the stack, once in a journal."""
        return self.account, self.region, self.stack

    def __str__(self) -> str:
        return f"{self.region}: {self.stage.value} at {self.at}: {self.reason}"


class Journal:
    """
    The regions that were asked, in a JSON file that is complete at any moment.

    Args:
        file: The file; an absent one is an empty journal.

    Attributes:
        entries: The regions by their keys.

    Raises:
        UnavailableError: The file is no journal.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            documents = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
            found = [Entry(**{**document, "stage": Stage(document["stage"])}) for document in documents]
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise UnavailableError(
                f"journal must be as this command wrote it, got {file}: {error}; see in each region whether a stack is "
                "left, then delete the file"
            ) from error
        self.entries: dict[Key, Entry] = {entry.key: entry for entry in found}

    def put(self, entry: Entry) -> Entry:
        """Write an entry in place of the earlier one of its stack, and return it with its time."""
        entry = replace(entry, at=datetime.now(timezone.utc).isoformat(timespec="seconds"))
        self._write({**self.entries, entry.key: entry})
        return entry

    def forget_refusals(self, keys: Iterable[Key]) -> None:
        """Remove the refusals of stacks."""
        chosen = set(keys)
        is_kept = {key: key not in chosen or entry.stage is not Stage.REFUSED for key, entry in self.entries.items()}
        self._write({key: entry for key, entry in self.entries.items() if is_kept[key]})

    def find_stage(self, key: Key) -> Stage | None:
        """Return the stage of a stack; None for one that was not asked yet."""
        entry = self.entries.get(key)
        return entry.stage if entry else None

    def _write(self, entries: dict[Key, Entry]) -> None:
        written = self._file.with_suffix(".new")
        written.write_text(json.dumps([asdict(entry) for entry in entries.values()], indent=1) + "\n", "utf-8")
        written.replace(self._file)
        self.entries = entries
