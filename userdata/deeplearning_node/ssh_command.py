"""How `ssh` is called: the one list of options with which a node asks another."""

from deeplearning_node.node import LoginUser

CONNECT_SECONDS = 10

# Only the agent's own known_hosts counts, no configuration of the user's changes where the call goes, and without one
# no connection is shared: nothing is left behind.
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


def ssh_command(
    user: LoginUser, address: str, shell_text: str, *, is_root: bool, has_terminal: bool = False
) -> list[str]:
    """
    Return the program that runs a text in the login user's shell on a node, with the master's user key.

    A caller that is root becomes the login user first. Default: without a terminal and standard input.
    """
    become = ["runuser", "-u", user.name, "--"] if is_root else []
    terminal = ["-t"] if has_terminal else ["-n", "-T"]
    options = [word for option in SSH_OPTIONS for word in ("-o", option)]
    identity = ["-i", f"{user.home}/.ssh/id_ed25519", "-l", user.name]
    return [*become, "ssh", "-F", "none", *terminal, *options, *identity, "--", address, shell_text]
