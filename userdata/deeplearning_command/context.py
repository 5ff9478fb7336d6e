"""Context of a command: the node on which it runs."""

import os
import pwd
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.terminal import RefusedError
from deeplearning_contract.names import JOBS_FOLDER, MASTER_HOST, NodeRole
from deeplearning_node.deadline import Clock
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import FACTS_FILE, InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs, system_path

if TYPE_CHECKING:  # most commands need no other node
    from deeplearning_command.remote.nodes import Remote


class Context:
    """
    Node on which a command runs.

    Each property is read at its first use, and raises RefusedError if the command cannot continue without it.
    """

    def __init__(self, root: Path, programs: Programs | None = None, clock: Clock | None = None) -> None:
        """Bind the root of the node's file tree. Default: the programs of the user's `PATH`, the machine's clock."""
        self.root = root
        self.programs = programs or Programs(system_path(os.environ.get("PATH", "")))
        self.clock = clock or Clock()

    def path(self, absolute: str) -> Path:
        """Return the location of an absolute path of the node."""
        return self.root / absolute.lstrip("/")

    @cached_property
    def facts(self) -> NodeFacts:
        """Facts of the node."""
        try:
            return NodeFacts.read(self.root)
        except FileNotFoundError as error:
            raise RefusedError(
                f"the agent has not prepared this node yet, or this machine is no node of a cluster ({FACTS_FILE} is "
                "missing); run the command on a node, and read the agent's log there: journalctl -u deeplearning-agent"
            ) from error
        except (OSError, ValueError) as error:  # ContractError is a ValueError.
            raise RefusedError(f"the agent has not prepared this node yet: {error}; read its log") from error

    @cached_property
    def membership(self) -> InstalledMembership:
        """Installed membership of the node."""
        return self._read_membership()

    @cached_property
    def user(self) -> LoginUser:
        """Login user, who owns jobs, data and environments, and the key for the nodes."""
        name = self.facts.login_user
        try:
            entry = pwd.getpwnam(name)
        except LookupError as error:
            raise RefusedError(f"the node must have the user {name}, got none; correct login_user") from error
        return LoginUser(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    @cached_property
    def remote(self) -> "Remote":
        """Nodes of the membership at the first use."""
        return self.open_remote()

    @property
    def is_root(self) -> bool:
        """True if the caller is root."""
        return os.geteuid() == 0

    @property
    def is_login_user(self) -> bool:
        """True if the caller is the login user."""
        return os.geteuid() == self.user.user_id

    @property
    def jobs_path(self) -> Path:
        """Folder of all jobs, on the shared file system."""
        return self.path(self.facts.mount_point) / JOBS_FOLDER

    def open_remote(self) -> "Remote":
        """Read the membership again, since nodes are replaced, and return its nodes; opens no connection."""
        from deeplearning_command.remote.nodes import Remote  # noqa: PLC0415 - most commands need no other node

        if self.facts.role != NodeRole.MASTER.value:
            raise RefusedError(f"the node must be the master, got a {self.facts.role}; log in to {MASTER_HOST}")
        user, membership = self.user, self._read_membership()
        if not self.is_root and not self.is_login_user:
            raise RefusedError(f"the user must be {user.name} or root; put sudo before the command")
        return Remote(self.facts, membership, user, self.programs, is_root=self.is_root)

    def require_login_user(self) -> None:
        """Refuse every user except the login user, who owns the provisioned files."""
        if not self.is_login_user:
            name = self.user.name
            raise RefusedError(f"the user must be {name}; put runuser -u {name} -- before the command")

    def _read_membership(self) -> InstalledMembership:
        try:
            return InstalledMembership.read(self.root)
        except (OSError, ValueError) as error:
            raise RefusedError(f"the cluster has not formed yet: {error}; read the agent's log") from error
