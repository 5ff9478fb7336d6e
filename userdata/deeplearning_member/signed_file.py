"""
Files on the shared file system that only members of one job can write for each other.

Whoever may write to the file system may change them, jobs of the same stack among them. The job's request has a secret,
which its own containers alone read; each file ends with a line that has the HMAC-SHA-256 of its text and its place.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_node.atomic_file import write_file


class ForgedError(ValueError):
    """The signature of a file is absent, or another one's."""


@dataclass(frozen=True)
class Signer:
    """
    Signatures of the members of a job.

    Attributes:
        secret: Secret of the job's request. Default: none, and nothing is signed: all jobs of a cluster on EMR have the
            same nodes.
    """

    secret: str = field(default="", repr=False)

    def write(self, path: Path, place: str, text: str) -> None:
        """
        Write a file with its signature.

        Args:
            path: The file, which is replaced.
            place: What the file is within the job, so that none stands for another.
            text: One line.
        """
        write_file(path, f"{text}\n{self._sign(place, text)}\n" if self.secret else f"{text}\n")

    def read(self, path: Path, place: str) -> str:
        """
        Return the text of a file.

        Raises:
            FileNotFoundError: It does not exist.
            ForgedError: It was not written by a member of the job for this place.
        """
        content = path.read_text(encoding="utf-8")
        if not self.secret:
            return content
        text, _, signature = content.removesuffix("\n").rpartition("\n")
        if not hmac.compare_digest(signature.encode(), self._sign(place, text).encode()):
            raise ForgedError("its signature must be made by a member of this job, it is not")
        return text

    def _sign(self, place: str, text: str) -> str:
        return hmac.new(self.secret.encode(), f"{place}\n{text}".encode(), hashlib.sha256).hexdigest()


UNSIGNED = Signer()
"""Of nodes that all jobs share."""
