"""Commands that log a user in on the master, as text for outputs."""

from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole


def session_command(cluster: str, region: str) -> str:
    """Return the command that opens a Session Manager shell on the master."""
    return f"aws ssm start-session --region {region} --target $({_query_address(cluster, region, 'InstanceId')})"


def ssh_command(cluster: str, region: str, login_user: str, *, is_public: bool) -> str:
    """
    Return the command that opens an SSH session on the master.

    It forwards no agent: the master's own key opens every node, and root on the master could use the user's keys.
    """
    field = "PublicIpAddress" if is_public else "PrivateIpAddress"
    return f"ssh {login_user}@$({_query_address(cluster, region, field)})"


def _query_address(cluster: str, region: str, field: str) -> str:
    filters = (
        f"Name=tag:{CLUSTER_TAG},Values={cluster} Name=tag:{ROLE_TAG},Values={NodeRole.MASTER.value} "
        "Name=instance-state-name,Values=running"
    )
    query = f"Reservations[0].Instances[0].{field}"
    return f"aws ec2 describe-instances --region {region} --filters {filters} --query '{query}' --output text"
