"""Account whose policies are evaluated, and the resources that a call names."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol


class Account(Protocol):
    """One account and region; its names and tags decide which resources a call is about."""

    account_id: str
    region: str
    url_suffix: str
    """DNS suffix of the services."""

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""

    def find_group(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of an Auto Scaling group; None when there is none."""

    def find_group_of(self, instance_id: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of the group that has an instance; None when none has it."""

    def find_cluster_part(self, *path: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of a cluster of EKS, or of a part by cluster, kind and name; None where there is none."""

    def find_partition_key(self, table: str) -> str:
        """Return the name of a table's partition key; empty when there is no such table."""

    def find_key(self, arn: str) -> str:
        """Return the ARN of the customer's key that encrypts a resource; empty without one."""

    def find_role(self, name: str) -> str:
        """Return the ARN of a role, by its name or ARN; empty when there is no such role."""

    def find_boundary(self, role_arn: str) -> tuple[str, str] | None:
        """Return ARN and text of a role's permissions boundary; None where it has none."""

    def find_profile(self, name: str) -> str:
        """Return the ARN of an instance profile; empty when there is none."""

    def find_profile_role(self, name: str) -> str:
        """Return the ARN of the role of an instance profile, by its name or ARN; empty when there is none."""

    def find_tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource of EC2, of a cluster of EMR, or of a training job of SageMaker."""


Parameters = Mapping[str, Any]
Values = Mapping[str, str | tuple[str, ...]]
Target = tuple[str, Values]
"""ARN of a resource (`*` where the action takes none), and the condition keys that the service sets for it."""
Targets = Callable[[Parameters, Account], Iterator[Target]]
