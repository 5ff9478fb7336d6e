"""Node, its login user and its files."""

import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_contract.names import NodeRole
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.programs import Programs

if TYPE_CHECKING:  # their import would take a third of the start of `deeplearning` on every host
    from deeplearning_contract.settings import NodeSettings
    from deeplearning_node.instance_metadata import Identity

INSTANCES_DIRECTORY = "/var/lib/deeplearning/instances"
STARTED_FILE = "/run/deeplearning/agent-started"


@dataclass(frozen=True)
class LoginUser:
    """Account of users and of training."""

    name: str
    user_id: int
    group_id: int
    home: str

    @property
    def owner(self) -> tuple[int, int]:
        """User and group id, for `chown`."""
        return self.user_id, self.group_id


@dataclass(frozen=True)
class Node:
    """One node."""

    settings: "NodeSettings"  # Settings from user data
    identity: "Identity"  # Identity of the instance in EC2
    root: Path = Path("/")  # Root of its file tree; `/` except in tests
    programs: Programs = field(default_factory=Programs)
    clock: Clock = field(default_factory=Clock)  # Its time

    @property
    def is_master(self) -> bool:
        """True if the settings make this node the master."""
        return self.settings.role is NodeRole.MASTER

    def path(self, absolute: str) -> Path:
        """Return the location of an absolute path of the node."""
        return self.root / absolute.lstrip("/")

    def instance_file(self, name: str) -> Path:
        """
        Return the path of a file of this instance alone.

        An image of a node contains the folders of other instances, which are ignored.
        """
        return self.path(f"{INSTANCES_DIRECTORY}/{self.identity.instance_id}/{name}")

    def limit(self, seconds: float) -> Deadline:
        """Return the deadline that many seconds from now."""
        return Deadline.after(self.clock, seconds)

    def login_user(self) -> LoginUser:
        """Return the login user; StageFailure when the image has no such user."""
        name = self.settings.login_user
        try:
            entry = pwd.getpwnam(name)
        except KeyError as error:
            raise StageFailure(
                f"the image has no user {name!r}",
                "set login_user to the image's login user, such as ubuntu or ec2-user",
            ) from error
        return LoginUser(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    def __str__(self) -> str:
        """Name the node in logs and reasons."""
        return f"{self.settings.role.value} {self.identity.instance_id} ({self.identity.address})"
