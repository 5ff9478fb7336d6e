"""What the table of operations asks about the account in which a call is made."""

from collections.abc import Mapping
from typing import Protocol


class Estate(Protocol):
    """One account and region; its names and tags decide which resources a call is about."""

    @property
    def account(self) -> str:
        """Account id."""

    @property
    def region(self) -> str:
        """Region."""

    @property
    def url_suffix(self) -> str:
        """DNS suffix of the services."""

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""

    def find_group(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of an Auto Scaling group; None when there is none."""

    def find_group_of(self, instance_id: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of the group that has an instance; None when none has it."""

    def find_partition_key(self, table: str) -> str:
        """Return the name of a table's partition key; empty when there is no such table."""

    def find_key(self, arn: str) -> str:
        """Return the ARN of the customer's key that encrypts a resource; empty without one."""
