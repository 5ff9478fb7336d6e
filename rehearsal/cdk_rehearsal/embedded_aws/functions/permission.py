"""Which service may invoke a function."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Permission:
    """A statement of a function's resource policy: which service may invoke it, for which resource."""

    principal: str
    source_arn: str | None
    source_account: str | None
