"""
SSH between nodes: the node's host key, the master's user key, their files, and the `ssh` command.

A private key never leaves the node that made it; only public keys travel.
"""

import os
from pathlib import Path

from deeplearning_contract.membership import Member, is_public_key, named_members
from deeplearning_contract.names import MASTER_HOST
from deeplearning_node.atomic_file import write_block
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import LoginUser, Node
from deeplearning_node.programs import ProgramError

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
KEYGEN_SECONDS = 30
SSHD_SECONDS = 300
CONNECT_SECONDS = 10

# Use only the agent's known_hosts. Ignore the user's configuration: it could redirect the call, or share a connection
# that outlives it.
SSH_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UserKnownHostsFile=/dev/null",
    "IdentitiesOnly=yes",
    f"ConnectTimeout={CONNECT_SECONDS}",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=2",
    "LogLevel=ERROR",
)


def read_host_key(node: Node) -> str:
    """
    Return the public half of the node's ed25519 host key, `<type> <base64>`.

    Effects: creates the key when the image has none, or an empty file; an existing key is kept, also over a reboot.
    """
    key = node.path(HOST_KEY)
    if not _is_there(key):
        key.parent.mkdir(parents=True, exist_ok=True)
        _make_key(node, str(key), "")
    return _public_part(node, str(key))


def wait_for_sshd(node: Node, host_key: str, deadline: Deadline) -> None:
    """Wait until sshd presents the node's host key; StageFailure after five minutes."""
    argv = ["ssh-keyscan", "-T", "5", "-t", "ed25519", node.identity.address]
    answer = ""
    for _ in deadline.at_most(SSHD_SECONDS).attempts():
        try:
            answer = node.programs.run(argv, timeout_seconds=KEYGEN_SECONDS)
        except ProgramError as error:
            answer = f"{error} {error.output}"
        if host_key in answer:
            return
    raise StageFailure(
        f"sshd at {node.identity.address} must present the key of {HOST_KEY}",
        "see `systemctl status ssh` (or sshd) and the HostKey lines of its configuration",
        output=answer,
    )


def make_user_key(node: Node) -> str:
    """
    Return the public half of the login user's key on the master.

    Effects: creates `~/.ssh/id_ed25519` of the login user once; an existing key is used.
    """
    user = node.login_user()
    directory = _ssh_directory(node, user)
    key = node.path(f"{directory}/id_ed25519")
    if not _is_there(key):
        _make_key(node, str(key), f"deeplearning-{node.settings.cluster}")
        os.chown(key, *user.owner)
        os.chown(f"{key}.pub", *user.owner)
    return _public_part(node, str(key))


def authorize(node: Node, user_key: str) -> None:
    """
    Let the master's user key, one plain public key, log in as the login user.

    Effects: a block in the login user's `~/.ssh/authorized_keys`; keys outside the block are kept.
    """
    if not is_public_key(user_key):
        raise StageFailure(f"the state item's user_key must be an SSH public key, got {user_key[:80]!r}", "")
    user = node.login_user()
    path = node.path(f"{_ssh_directory(node, user)}/authorized_keys")
    write_block(path, f"{user_key} {MASTER_HOST}", mode=0o600, owner=user.owner)


def write_known_hosts(node: Node, members: tuple[Member, ...]) -> None:
    """
    Write every member's host key under its names and its address.

    Effects: a block in /etc/ssh/ssh_known_hosts; a reused address has only its new key.
    """
    write_block(node.path(KNOWN_HOSTS), "\n".join(known_hosts_lines(members)))


def known_hosts_lines(members: tuple[Member, ...]) -> list[str]:
    """Return one line a member, master first."""
    return [
        ",".join(dict.fromkeys([name, *([MASTER_HOST] if rank == 0 else []), member.instance_id, member.address]))
        + f" {member.host_key}"
        for rank, (name, member) in enumerate(named_members(members))
    ]


def ssh_command(
    user: LoginUser, address: str, shell_text: str, *, is_root: bool, has_terminal: bool = False
) -> list[str]:
    """
    Return the command line that runs a text in the login user's shell on a node, with the master's user key.

    A caller that is root switches to the login user first. Default: without a terminal and standard input.
    """
    become = ["runuser", "-u", user.name, "--"] if is_root else []
    terminal = ["-t"] if has_terminal else ["-n", "-T"]
    options = [word for option in SSH_OPTIONS for word in ("-o", option)]
    identity = ["-i", f"{user.home}/.ssh/id_ed25519", "-l", user.name]
    return [*become, "ssh", "-F", "none", *terminal, *options, *identity, "--", address, shell_text]


def _ssh_directory(node: Node, user: LoginUser) -> str:
    directory = node.path(f"{user.home}/.ssh")
    if not directory.is_dir():
        directory.mkdir(parents=True, mode=0o700)
        os.chown(directory, *user.owner)
    return f"{user.home}/.ssh"


def _is_there(key: Path) -> bool:
    """Return whether a key exists; one that was being written when the machine stopped is empty."""
    return key.exists() and key.stat().st_size > 0


def _make_key(node: Node, path: str, comment: str) -> None:
    """Create a key under another name first: a truncated key would be refused at every later start."""
    draft = f"{path}.new"
    for name in (draft, f"{draft}.pub"):
        Path(name).unlink(missing_ok=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", draft]
    node.programs.run(argv, timeout_seconds=KEYGEN_SECONDS)
    Path(f"{draft}.pub").rename(f"{path}.pub")
    Path(draft).rename(path)


def _public_part(node: Node, path: str) -> str:
    """Read the public part from the private key: the file beside it can be stale or absent."""
    written = node.programs.run(["ssh-keygen", "-y", "-P", "", "-f", path], timeout_seconds=KEYGEN_SECONDS)
    public = " ".join(written.split()[:2])
    if not is_public_key(public):
        raise StageFailure(
            f"{path} must be an SSH private key without a passphrase", "replace or remove it", output=written
        )
    return public
