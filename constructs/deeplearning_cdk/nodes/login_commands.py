"""The commands that log a user in on the master, as text for outputs."""

from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole


def session_command(cluster: str, region: str) -> str:
    """
    Return the command that opens a Session Manager shell on the master.

    Args:
        cluster: The cluster's name.
        region: The stack's region.
    """
    return f"aws ssm start-session --region {region} --target $({_ask(cluster, region, 'InstanceId')})"


def ssh_command(cluster: str, region: str, login_user: str, *, is_public: bool) -> str:
    """
    Return the command that opens an SSH session on the master.

    No agent is forwarded: the master's own key opens every node, and whoever has root there could use the user's.

    Args:
        cluster: The cluster's name.
        region: The stack's region.
        login_user: Who logs in.
        is_public: Whether the master has a public address.
    """
    field = "PublicIpAddress" if is_public else "PrivateIpAddress"
    return f"ssh {login_user}@$({_ask(cluster, region, field)})"


def _ask(cluster: str, region: str, field: str) -> str:
    filters = (
        f"Name=tag:{CLUSTER_TAG},Values={cluster} Name=tag:{ROLE_TAG},Values={NodeRole.MASTER.value} "
        "Name=instance-state-name,Values=running"
    )
    query = f"Reservations[0].Instances[0].{field}"
    return f"aws ec2 describe-instances --region {region} --filters {filters} --query '{query}' --output text"
