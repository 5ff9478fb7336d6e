"""The options of a rehearsal."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from cdk_rehearsal.iam.given_policies import GivenPolicies, read_given_policies

Expectation = Literal["trained", "counted", "formed", "failed", "stopped", "job"]
"""
The end that a rehearsal expects. In cases only: `counted` is a cluster whose job counts its ranks, `stopped` is
a cluster that forms and then ends by itself, `job` a training job whose end the case describes.
"""


@dataclass(frozen=True)
class RehearsalOptions:
    """
    Options of a rehearsal, as the command line has them.

    Attributes:
        stack: Name of the stack. Default: the only one of the assembly.
        nodes: Nodes in all, master included. Default: as the template says.
        gpus_per_node: GPUs that the `nvidia-smi` stand-in shows; 0 leaves the program out. Default: 1.
        minutes: Time after which the rehearsal gives up. Default: 10.
        keep: Whether the cluster runs on after the verdict, until it is interrupted. Default: it ends.
        json: Whether standard output has the report as JSON. Default: as text.
        out: Folder for the reports.
        cache: Folder that keeps what is made or downloaded once, for all rehearsals.
        referees: Whether the template is first held against the rules of AWS. Default: it is.
        lustre_client: Whether the nodes' image has a client of FSx for Lustre. Default: it has none.
        organization_policies: Files of service control policies, as the policies of one level. Default: none.
        deployment_boundary: File of the permissions boundary of the role with which CloudFormation creates resources.
            Default: it has none.
        account_policies: Managed policies that the account has before: name with its path -> file. Default: none.
        seed: Draws the order in which resources are created and deleted, as far as their dependencies leave it open.
            Default: a random number below 1,000,000.
        verbose: Whether progress shows routine, too. Default: it does not.
        case: Reference of the fault case that is rehearsed; its report goes to a folder of its own. Default: none.
    """

    assembly: Path
    out: Path
    cache: Path
    stack: str | None = None
    nodes: int | None = None
    gpus_per_node: int = 1
    expect: Expectation = "trained"
    minutes: float = 10.0
    keep: bool = False
    json: bool = False
    referees: bool = True
    lustre_client: bool = False
    organization_policies: Sequence[str] = ()
    deployment_boundary: str | None = None
    account_policies: Mapping[str, str] = field(default_factory=dict)
    seed: int = field(default_factory=partial(secrets.randbelow, 1_000_000))
    verbose: bool = False
    case: str | None = None

    @property
    def folder(self) -> Path:
        """Folder of this rehearsal's reports."""
        return self.out if self.case is None else self.out / self.case.rpartition("::")[2]

    @property
    def work(self) -> Path:
        """Folder of the lab; what is in it is in memory, seen by the lab only, and ends with it."""
        return self.folder / "lab"

    def read_policies(self) -> GivenPolicies:
        """Read the files of policies; UnavailableError for one that is none."""
        return read_given_policies(self.organization_policies, self.deployment_boundary, self.account_policies)

    def to_json(self) -> str:
        """Return the text that `from_json` reads in the enclosed process."""
        document = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> "RehearsalOptions":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        paths = {name: Path(document[name]) for name in ("assembly", "out", "cache")}
        policies = tuple(document["organization_policies"])
        return cls(**document | paths | {"organization_policies": policies})
