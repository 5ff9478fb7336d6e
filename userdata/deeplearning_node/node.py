"""The node, as the other modules use it."""

import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_contract.names import NodeRole
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.programs import Programs

if TYPE_CHECKING:  # they would take a third of the start of `deeplearning` on every host
    from deeplearning_contract.settings import NodeSettings
    from deeplearning_node.instance_metadata import Identity

INSTANCES_DIRECTORY = "/var/lib/deeplearning/instances"
STARTED_FILE = "/run/deeplearning/agent-started"


@dataclass(frozen=True)
class LoginUser:
    """The account under which users log in and training runs."""

    name: str
    user_id: int
    group_id: int
    home: str

    @property
    def owner(self) -> tuple[int, int]:
        """User and group id, as `chown` takes them."""
        return self.user_id, self.group_id


@dataclass(frozen=True)
class Node:
    """One node."""

    settings: "NodeSettings"  # What user data said
    identity: "Identity"  # What EC2 says of the instance
    root: Path = Path("/")  # Where its file tree begins; `/` but for tests
    programs: Programs = field(default_factory=Programs)
    clock: Clock = field(default_factory=Clock)  # Its time

    @property
    def is_master(self) -> bool:
        """Whether the settings make this node the master."""
        return self.settings.role is NodeRole.MASTER

    def path(self, absolute: str) -> Path:
        """Return where an absolute path of the node lies."""
        return self.root / absolute.lstrip("/")

    def instance_file(self, name: str) -> Path:
        """
        Return a file that belongs to this instance alone.

        An image that was made from a node carries the folders of other instances; they mean nothing here.
        """
        return self.path(f"{INSTANCES_DIRECTORY}/{self.identity.instance_id}/{name}")

    def limit(self, seconds: float) -> Deadline:
        """Return the deadline that many seconds from now."""
        return Deadline.after(self.clock, seconds)

    def login_user(self) -> LoginUser:
        """Look the login user up; StageFailure when the image has no such user."""
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
