"""A bucket that the account has before the stack is created: who may not use it, and what a cache in it holds."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class AccountBucket:
    """
    A bucket.

    Attributes:
        name: Its name.
        denies: Actions that its policy denies to everybody.
        damaged_environments: Whether it holds the environments of earlier rehearsals as the cluster's cache would, with
            a wrong byte in each archive.
    """

    name: str
    denies: tuple[str, ...] = ()
    damaged_environments: bool = False

    def make_policy(self, partition: str) -> str:
        """Return its policy as JSON."""
        arn = f"arn:{partition}:s3:::{self.name}"
        denial = {"Effect": "Deny", "Principal": "*", "Action": list(self.denies), "Resource": [arn, f"{arn}/*"]}
        return json.dumps({"Version": "2012-10-17", "Statement": [denial]})
