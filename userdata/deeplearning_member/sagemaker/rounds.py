"""
Rounds of a training job: each start of its containers, and the file in which the first container names it and its end.

After an interruption of spot capacity, SageMaker starts the containers again: under the same names, with other
addresses and keys. What the earlier containers announced belongs to the earlier round.
"""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_contract.document import parse_record
from deeplearning_member.signed_file import ForgedError, Signer
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
_PLACE = "round.json"


@dataclass(frozen=True)
class Round:
    """One start of the containers, and its end."""

    id: str
    status: int | None = None  # Exit status of the job; None while it runs
    cause: str = ""  # Cause of a failure or a stop; empty otherwise


class RoundFile:
    """File `.deeplearning/<training job>/round.json` on the shared file system."""

    def __init__(self, node: Node, signer: Signer) -> None:
        """Bind the node, whose cluster is the training job, and its signatures; nothing is read yet."""
        settings, self._signer = node.settings, signer
        self._refused = ""
        self._path = node.path(f"{settings.file_system.mount_point}/.deeplearning/{settings.cluster}/round.json")

    def read(self) -> Round | None:
        """
        Return the round.

        None before the first container has started, while the file system does not respond, or for a forged one, which
        is logged once.
        """
        try:
            return parse_record(Round, self._signer.read(self._path, _PLACE), "round")
        except ForgedError as error:
            if not self._refused:
                LOG.warning("ignored %s: %s", self._path, error)
            self._refused = str(error)
        except (OSError, ValueError):  # ContractError is a ValueError.
            pass
        return None

    def write(self, current: Round) -> None:
        """Publish the round, or its end."""
        self._signer.write(self._path, _PLACE, json.dumps(asdict(current)))

    def refresh(self, host: str) -> None:
        """
        Make this client of NFS look for the file again.

        It remembers for a minute that a file is absent, unless the folder changes (nfs(5), "Directory entry caching").
        """
        refresh_folder(self._path.parent, host)


def refresh_folder(folder: Path, host: str) -> None:
    """Change a folder on the shared file system, so that this client reads it anew."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".{host}.reads"
    mark.touch()
    mark.unlink(missing_ok=True)
