"""The options of a rehearsal."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Expectation = Literal["trained", "formed", "failed", "stopped"]
"""The end that a rehearsal expects; `stopped` is a cluster that forms and then ends by itself, in cases only."""


@dataclass(frozen=True)
class RehearsalOptions:
    """
    The questions that the command line answers.

    Attributes:
        assembly: Folder of the cloud assembly.
        stack: Name of the stack. None: the only one of the assembly.
        nodes: Nodes in all, master included. None: as the template says.
        gpus_per_node: GPUs that the `nvidia-smi` stand-in shows; 0 leaves the program out.
        expect: What is waited for and judged.
        minutes: Time after which the rehearsal gives up.
        keep: Keep the cluster running after the verdict, until it is interrupted.
        json: Print the report as JSON on standard output.
        out: Folder for the reports.
        cache: Folder that keeps what is made or downloaded once, for all rehearsals.
        lustre_client: Whether the nodes' image has a client of FSx for Lustre.
        verbose: Show routine too while it runs.
        case: File of the fault case whose faults are injected; its report goes to a folder of its own. None: no fault.
    """

    assembly: Path
    stack: str | None
    nodes: int | None
    gpus_per_node: int
    expect: Expectation
    minutes: float
    keep: bool
    json: bool
    out: Path
    cache: Path
    lustre_client: bool = False
    verbose: bool = False
    case: Path | None = None

    @property
    def folder(self) -> Path:
        """Folder of this rehearsal's reports."""
        return self.out if self.case is None else self.out / self.case.stem

    @property
    def work(self) -> Path:
        """Folder of the lab; what is in it is in memory, seen by the lab only, and ends with it."""
        return self.folder / "lab"

    def to_json(self) -> str:
        """Return the text that `from_json` reads in the enclosed process."""
        document = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> "RehearsalOptions":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        paths = {
            name: Path(document[name]) for name in ("assembly", "out", "cache", "case") if document[name] is not None
        }
        return cls(**document | paths)
