"""Who stages a source now: a file whose time moves on, so that a master which is gone is succeeded."""

import json
import os
import secrets
import threading
from pathlib import Path
from types import TracebackType

from deeplearning_contract.document import ContractError, parse_object
from deeplearning_provision.steps import ProvisionFailure

BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0


class LeaseLostError(ProvisionFailure):
    """Another node has taken the staging over, since this one was silent for too long."""

    def __init__(self, owner: str) -> None:
        """Name the new owner."""
        super().__init__(f"{owner} has taken the staging over", "nothing needs to be done", is_final=False)


class Lease:
    """
    The right to stage a source, on its own file system.

    Ages are differences of two times that the same server gave, so no node's clock counts. Two holders do no harm, as
    both write the same bytes to the same places: the lease saves work.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Prepare; `owner` is this node's instance id. What this node held before belongs to a process that is gone."""
        self._path = path
        self._owner = owner
        self._probe = path.with_name(f"{path.name}.{owner}.{secrets.token_hex(4)}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def find_holder(self) -> str:
        """
        Take the lease, if it is free.

        Returns:
            Who holds it: another node, or empty when it is this one now.
        """
        self._probe.write_text(json.dumps({"owner": self._owner}), encoding="utf-8")
        try:
            holder = self.read_owner()
            if holder and holder != self._owner:
                age = self._probe.stat().st_mtime - self._path.stat().st_mtime
                if age < STALE_SECONDS:
                    return holder
            self._probe.rename(self._path)
        except FileNotFoundError:  # It was given back this moment.
            return "nobody"
        finally:
            self._probe.unlink(missing_ok=True)
        return self.read_owner().replace(self._owner, "")

    def read_owner(self) -> str:
        """Return who holds it; empty when nobody does."""
        try:
            return str(parse_object(self._path.read_text(encoding="utf-8"), "lease").get("owner", ""))
        except (OSError, ContractError):
            return ""

    def check(self) -> None:
        """
        Refuse to go on when another node has it.

        Raises:
            LeaseLostError: One has.
        """
        owner = self.read_owner()
        if owner not in {"", self._owner}:
            raise LeaseLostError(owner)

    def __enter__(self) -> None:
        """Keep what `find_holder` took alive."""
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self._stop.set()
        self._thread.join()
        if self.read_owner() == self._owner:
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            if self.read_owner() != self._owner:
                return
            try:
                os.utime(self._path)
            except OSError:  # The next beat comes soon; one that is late is succeeded at worst.
                continue
