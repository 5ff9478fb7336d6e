"""The policies of a deployed or synthesized stack, with names by which several stacks are compared."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.iam.cluster_resources import find_image_policy
from cdk_rehearsal.iam.limits import Document as PolicyDocument
from cdk_rehearsal.iam.limits import Limits
from cdk_rehearsal.iam.policy import list_texts, read_policy
from deeplearning_contract.jobs.submission import source_prefix
from deeplearning_contract.names import CLUSTER_TAG

Document = Mapping[str, Any]
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SOURCES = re.compile(re.escape(source_prefix("#")).replace(re.escape("#"), r'([^/"]+)'))
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_KINDS: Mapping[str, str] = {
    "queue": "arn:{partition}:sqs:{region}:{account}:{name}",
    "table": "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
    "topic": "arn:{partition}:sns:{region}:{account}:{name}",
    "key": "arn:{partition}:kms:{region}:{account}:key/{name}",
    "function": "arn:{partition}:lambda:{region}:{account}:function:{name}",
    "log_group": "arn:{partition}:logs:{region}:{account}:log-group:{name}",
    "bucket": "arn:{partition}:s3:::{name}",
    "role": "arn:{partition}:iam::{account}:role/{name}",  # one with a path is found among the roles
}


@dataclass(frozen=True)
class Rights:
    """
    Rights of the roles and resources of an account.

    Attributes:
        roles: Role ARN -> name of a policy -> its document.
        resources: ARN -> its own policy's document.
        names: Physical name -> logical id.
        boundaries: Role ARN -> ARN of its permissions boundary -> that policy's document. Default: no role has one.
    """

    account: str
    region: str
    roles: Mapping[str, Mapping[str, Document]]
    resources: Mapping[str, Document]
    names: Mapping[str, str] = field(default_factory=dict)
    boundaries: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)

    def find_limits(self, role_arn: str) -> Limits:
        """Return what limits a role: its permissions boundary, if it has one."""
        found = next(iter(self.boundaries.get(role_arn, {}).items()), None)
        return Limits(PolicyDocument(found[0], read_policy(found[1], "identity")) if found else None)

    @property
    def partition(self) -> str:
        """The partition of its ARNs."""
        return next(iter(self.roles), "arn:aws").split(":")[1]

    @property
    def cluster(self) -> str:
        """The cluster's name, by whose tag or sources roles know it; RehearsalError when none knows it."""
        text = json.dumps(self.roles)
        found = re.search(rf'ResourceTag/{re.escape(CLUSTER_TAG)}": "([^"]+)"', text) or _SOURCES.search(text)
        if found is None:
            raise RehearsalError(
                f"a role must ask for the tag {CLUSTER_TAG} or read sources of jobs, got none; is this a cluster's "
                "stack?"
            )
        return found[1]

    @cached_property
    def _short_names(self) -> Mapping[str, str]:
        """Last part of a physical name -> logical id, long ones first; of equal ones, that which is the whole name."""
        names = sorted(self.names, key=lambda name: _last_part(name) == name)
        chosen = {_last_part(name): self.names[name] for name in names}
        return {short: chosen[short] for short in sorted(chosen, key=len, reverse=True) if short}

    def find_granted(self, action: str) -> str:
        """Return a resource on which a role may do an action, with `x` for what a pattern leaves open."""
        for entry in self._list_statements():
            if action in list_texts(entry["Action"]):
                return list_texts(entry["Resource"])[0].replace("*", "x")
        raise RehearsalError(f"a role must have {action}, got none; correct its name")

    def find_condition(self, key: str) -> str:
        """Return a value that a role's policy asks of a condition key, with `x` for what a pattern leaves open."""
        for entry in self._list_statements():
            for keys in entry.get("Condition", {}).values():
                if key in keys and (value := list_texts(keys[key])[0]) not in ("true", "false"):
                    return value.replace("*", "x")
        raise RehearsalError(f"a policy must ask for {key}, got none; correct its name")

    def _list_statements(self) -> Iterator[Mapping[str, Any]]:
        for policies in self.roles.values():
            for document in policies.values():
                statements = document["Statement"]
                yield from [statements] if isinstance(statements, Mapping) else statements

    def find(self, kind: str, fragment: str) -> str:
        """
        Return the ARN of a resource of the stack.

        Args:
            kind: One of `queue`, `table`, `topic`, `key`, `function`, `log_group`, `bucket`, `role`.
            fragment: End of its logical id, but for CDK's digest.

        Raises:
            RehearsalError: There is none, or there are several.
        """
        ending = re.compile(re.escape(fragment) + r"[0-9A-F]{8}$")
        found = sorted({self._format(kind, name) for name, own in self.names.items() if ending.search(own)})
        if len(found) != 1:
            raise RehearsalError(
                f"{kind} {fragment!r} must be one resource of the stack, got {found}; correct its name"
            )
        return found[0]

    def find_policy(self, resource: str) -> Document | None:
        """Return the own policy of a resource, of an object that of its bucket; None where there is none."""
        name = resource.partition("/")[0] if ":s3:::" in resource else resource
        return find_image_policy(resource, self.account) or self.resources.get(name)

    def shorten(self, text: str) -> str:
        """Return a text with logical ids in the place of physical names, so that it is the same in every stack."""
        for short, name in self._short_names.items():
            if short != name:
                text = text.replace(short, f"<{name}>")
        text = _INSTANCE.sub("<instance>", _DIGEST.sub("<digest>", text))
        return text.replace(self.account, "<account>")

    def _format(self, kind: str, name: str) -> str:
        arn = _KINDS[kind].format(
            partition=self.partition, region=self.region, account=self.account, name=_last_part(name)
        )
        ending = f"/{_last_part(name)}"
        return next((role for role in self.roles if kind == "role" and role.endswith(ending)), arn)


def _last_part(physical_id: str) -> str:
    """Return the name in an id, which may be a URL or an ARN; nothing where it is too short to be found in a text."""
    name = physical_id.partition("?")[0].rstrip("/")
    name = re.split(r"[/:|]", name)[-1]
    return name if len(name) > 8 else ""  # noqa: PLR2004 - shorter ones are words of policies too
