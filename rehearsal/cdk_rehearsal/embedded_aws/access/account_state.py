"""
What authorization asks of the deployed account: policies, keys, tags.

Everything is read at each call from what the stack's deployment left in moto, so that a policy that is missing in the
template is missing here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.backup.models import backup_backends
from moto.dynamodb.models import dynamodb_backends
from moto.efs.models import efs_backends
from moto.iam.models import iam_backends
from moto.kms.models import kms_backends
from moto.s3.models import s3_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends

from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.autoscaling.group import ScalingGroup
from cdk_rehearsal.embedded_aws.place import Place


class AccountState:
    """The state of one account and region."""

    def __init__(self, place: Place, scaling: ScalingDriver) -> None:
        self._place = place
        self._scaling = scaling

    @property
    def account(self) -> str:
        """Account id."""
        return self._place.account

    @property
    def region(self) -> str:
        """Region."""
        return self._place.region

    @property
    def url_suffix(self) -> str:
        """DNS suffix of the services."""
        return self._place.url_suffix

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return self._place.arn(service, resource)

    def find_group(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of an Auto Scaling group; None when there is none."""
        return _describe_group(self._scaling.groups.get(name))

    def find_group_of(self, instance_id: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of the group that has an instance; None when none has it."""
        groups = list(self._scaling.groups.values())
        return _describe_group(next((group for group in groups if group.find(instance_id)), None))

    def find_partition_key(self, table: str) -> str:
        """Return the name of a table's partition key; empty when there is no such table."""
        found = dynamodb_backends[self.account][self.region].tables.get(table)
        return str(found.hash_key_attr) if found else ""

    def find_key(self, arn: str) -> str:
        """Return the ARN of the customer's key that encrypts a resource; empty without one."""
        service, name = arn.split(":")[2], arn.split(":", 5)[5]
        reader = _KEY_READERS.get(service)
        key = "" if reader is None else str(reader(self._place, name) or "")
        if not key or key.startswith("alias/aws/"):
            return ""
        backend = kms_backends[self.account][self.region]
        found = backend.keys.get(backend.any_id_to_key_id(key))
        return str(found.arn) if found else key

    def list_identity_policies(self, role_arn: str) -> dict[str, str]:
        """Return the texts of a role's policies by name, inline and attached."""
        role = next((role for role in self._iam().roles.values() if role.arn == role_arn), None)
        if role is None:
            return {}
        attached = {policy.arn: _default_text(policy) for policy in list(role.managed_policies.values())}
        inline = {name: _text(document) for name, document in list(role.policies.items())}
        return inline | attached

    def list_roles(self) -> tuple[str, ...]:
        """Return the ARNs of all roles."""
        return tuple(role.arn for role in list(self._iam().roles.values()))

    def find_resource_policy(self, arn: str) -> str | None:
        """Return the text of a resource's own policy; None where it has none."""
        service, name = arn.split(":")[2], arn.split(":", 5)[5]
        reader = _POLICY_READERS.get(service)
        policy = None if reader is None else reader(self._place, name)
        return _text(policy) if policy else None

    def list_resource_policies(self) -> dict[str, str]:
        """Return the texts of all resources' policies by ARN."""
        found = ((arn, self.find_resource_policy(arn)) for arn in self._list_resources())
        return {arn: policy for arn, policy in found if policy}

    def _list_resources(self) -> Iterator[str]:
        account, region, arn = self.account, self.region, self.arn
        yield from (arn("sqs", name) for name in list(sqs_backends[account][region].queues))
        yield from list(sns_backends[account][region].topics)
        yield from (key.arn for key in list(kms_backends[account][region].keys.values()))
        systems = list(efs_backends[account][region].file_systems_by_id)
        yield from (arn("elasticfilesystem", f"file-system/{name}") for name in systems)
        functions = lambda_backends[account][region].list_functions()
        yield from (arn("lambda", f"function:{function.function_name}") for function in functions)
        buckets = list(s3_backends[account][self._place.partition].buckets)
        yield from (f"arn:{self._place.partition}:s3:::{name}" for name in buckets)

    def _iam(self) -> Any:
        return iam_backends[self.account][self._place.partition]


def _describe_group(group: ScalingGroup | None) -> tuple[str, Mapping[str, str]] | None:
    return None if group is None else (group.arn, {tag.key: tag.value for tag in group.tags})


def _read_queue(place: Place, name: str) -> Any:
    return sqs_backends[place.account][place.region].queues.get(name)


def _read_topic(place: Place, name: str) -> Any:
    return sns_backends[place.account][place.region].topics.get(place.arn("sns", name))


def _read_bucket(place: Place, name: str) -> Any:
    return s3_backends[place.account][place.partition].buckets.get(name.partition("/")[0])


def _read_table_key(place: Place, name: str) -> str | None:
    table = dynamodb_backends[place.account][place.region].tables.get(name.partition("/")[2])
    chosen = table.sse_specification if table else None
    return chosen.get("KMSMasterKeyId") if chosen else None


def _read_vault_key(place: Place, name: str) -> str | None:
    vault = backup_backends[place.account][place.region].vaults.get(name.partition(":")[2])
    return vault.encryption_key_arn if vault else None


def _read_bucket_key(place: Place, name: str) -> str | None:
    bucket = _read_bucket(place, name)
    rule = (bucket.encryption or {}).get("Rule", {}) if bucket else {}
    chosen: str | None = rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
    return chosen


def _read_key_policy(place: Place, name: str) -> str | None:
    key = kms_backends[place.account][place.region].keys.get(name.partition("/")[2])
    return key.policy if key else None


def _read_file_system_policy(place: Place, name: str) -> str | None:
    found = efs_backends[place.account][place.region].file_systems_by_id.get(name.partition("/")[2])
    return found.file_system_policy if found else None


def _read_function(place: Place, name: str) -> Any:
    functions = lambda_backends[place.account][place.region].list_functions()
    return next((function for function in functions if function.function_name == name.split(":")[1]), None)


def _read_function_policy(place: Place, name: str) -> dict[str, Any] | None:
    function = _read_function(place, name)
    statements = function.policy.statements if function else None
    return {"Version": "2012-10-17", "Statement": statements} if statements else None


_KEY_READERS: Mapping[str, Callable[[Place, str], Any]] = {
    "sqs": lambda place, name: getattr(_read_queue(place, name), "kms_master_key_id", None),
    "sns": lambda place, name: getattr(_read_topic(place, name), "kms_master_key_id", None),
    "dynamodb": _read_table_key,
    "s3": _read_bucket_key,
    "backup": _read_vault_key,
    "lambda": lambda place, name: getattr(_read_function(place, name), "kms_key_arn", None),
}
_POLICY_READERS: Mapping[str, Callable[[Place, str], Any]] = {
    "sqs": lambda place, name: getattr(_read_queue(place, name), "policy", None),
    "sns": lambda place, name: getattr(_read_topic(place, name), "policy", None),
    "s3": lambda place, name: getattr(_read_bucket(place, name), "policy", None),
    "kms": _read_key_policy,
    "elasticfilesystem": _read_file_system_policy,
    "lambda": _read_function_policy,
}


def _text(policy: Any) -> str:
    if isinstance(policy, bytes):
        return policy.decode()
    return policy if isinstance(policy, str) else json.dumps(policy)


def _default_text(policy: Any) -> str:
    return next(_text(version.document) for version in policy.versions if version.is_default)
