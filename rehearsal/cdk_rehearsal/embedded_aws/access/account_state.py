"""
Policies, keys and tags of the deployed account, by which calls are decided.

Everything is read at each call from what the stack's deployment left in moto, so that a policy that is missing in the
template is missing here.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.backup.models import backup_backends
from moto.dynamodb.models import dynamodb_backends
from moto.ec2.models import ec2_backends
from moto.efs.models import efs_backends
from moto.iam.models import iam_backends
from moto.kms.models import kms_backends
from moto.s3.models import s3_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends

from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup
from cdk_rehearsal.iam.cluster_resources import find_image_policy
from cdk_rehearsal.place import Place


class AccountState:
    """The state of one account and region; `groups` are its Auto Scaling groups by name, which others change."""

    def __init__(self, place: Place, groups: Mapping[str, ScalingGroup]) -> None:
        self.place = place
        self._groups = groups
        self.account_id = place.account
        self.region = place.region
        self.url_suffix = place.url_suffix
        self.arn = place.arn
        self.find_cluster_tags: Callable[[str], Mapping[str, str]] = lambda _cluster_id: {}
        self.find_job_tags: Callable[[str], Mapping[str, str]] = lambda _arn: {}
        self.find_part: Callable[[Sequence[str]], tuple[str, Mapping[str, str]] | None] = lambda _path: None

    def find_group(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of an Auto Scaling group; None when there is none."""
        return _describe_group(self._groups.get(name))

    def find_group_of(self, instance_id: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of the group that has an instance; None when none has it."""
        groups = list(self._groups.values())
        return _describe_group(next((group for group in groups if group.find(instance_id)), None))

    def find_cluster_part(self, *path: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of a cluster of EKS, or of a part by cluster, kind and name; None where there is none."""
        return self.find_part(path)

    def find_partition_key(self, table: str) -> str:
        """Return the name of a table's partition key; empty when there is no such table."""
        found = dynamodb_backends[self.account_id][self.region].tables.get(table)
        return str(found.hash_key_attr) if found else ""

    def find_key(self, arn: str) -> str:
        """Return the ARN of the customer's key that encrypts a resource; empty without one."""
        key = str(_read_key(*_find_resource(self.place, arn)) or "")
        if not key or key.startswith("alias/aws/"):
            return ""
        backend = kms_backends[self.account_id][self.region]
        found = backend.keys.get(backend.any_id_to_key_id(key))
        return str(found.arn) if found else key

    def list_identity_policies(self, role_arn: str) -> dict[str, str]:
        """Return the texts of a role's policies by name, inline and attached."""
        role = next((role for role in self._read_roles() if role.arn == role_arn), None)
        if role is None:
            return {}
        versions = [(policy.arn, policy.versions) for policy in list(role.managed_policies.values())]
        attached = {arn: _text(entry.document) for arn, listed in versions for entry in listed if entry.is_default}
        inline = {name: _text(document) for name, document in list(role.policies.items())}
        return inline | attached

    def find_boundary(self, role_arn: str) -> tuple[str, str] | None:
        """Return ARN and text of a role's permissions boundary; None where it has none."""
        role = next((role for role in self._read_roles() if role.arn == role_arn), None)
        arn = role.permissions_boundary_arn if role else None
        if not arn:
            return None
        versions = iam_backends[self.account_id][self.place.partition].managed_policies[arn].versions
        return arn, next(_text(entry.document) for entry in versions if entry.is_default)

    def find_role_tags(self, role_arn: str) -> dict[str, str]:
        """Return the tags of a role, which its sessions have too; none where there is no such role."""
        role = next((role for role in self._read_roles() if role.arn == role_arn), None)
        return {} if role is None else {str(tag["Key"]): str(tag["Value"]) for tag in role.tags}

    def find_trust_policy(self, role_arn: str) -> str | None:
        """Return the text of a role's trust policy; None where there is no such role."""
        role = next((role for role in self._read_roles() if role.arn == role_arn), None)
        return None if role is None else _text(role.assume_role_policy_document)

    def find_role(self, name: str) -> str:
        """Return the ARN of a role, by its name or ARN; empty when there is no such role."""
        return next((str(role.arn) for role in self._read_roles() if name in (role.arn, role.name)), "")

    def find_profile_role(self, name: str) -> str:
        """Return the ARN of the role of an instance profile, by its name or ARN; empty when there is none."""
        found = self._read_profile(name)
        return str(found.roles[0].arn) if found and found.roles else ""

    def find_profile(self, name: str) -> str:
        """Return the ARN of an instance profile; empty when there is none."""
        return str(getattr(self._read_profile(name), "arn", ""))

    def find_tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource of EC2, of a cluster of EMR, or of a training job of SageMaker."""
        service, name = arn.split(":")[2], arn.rpartition("/")[2]
        if service == "sagemaker":
            return self.find_job_tags(arn)
        if service == "elasticmapreduce":
            return self.find_cluster_tags(name)
        return dict(ec2_backends[self.account_id][self.region].tags.get(name, {}))

    def list_roles(self) -> tuple[str, ...]:
        """Return the ARNs of all roles."""
        return tuple(role.arn for role in self._read_roles())

    def find_resource_policy(self, arn: str) -> str | None:
        """Return the text of a resource's own policy; None where it has none."""
        policy = find_image_policy(arn, self.account_id) or _read_policy(*_find_resource(self.place, arn))
        return _text(policy) if policy else None

    def list_resource_policies(self) -> dict[str, str]:
        """Return the texts of all resources' policies by ARN."""
        found = ((arn, self.find_resource_policy(arn)) for arn in self._list_resources())
        return {arn: policy for arn, policy in found if policy}

    def _list_resources(self) -> Iterator[str]:
        account, region, arn = self.account_id, self.region, self.arn
        yield from (arn("sqs", name) for name in list(sqs_backends[account][region].queues))
        yield from list(sns_backends[account][region].topics)
        yield from (key.arn for key in list(kms_backends[account][region].keys.values()))
        yield from (arn("elasticfilesystem", f"file-system/{name}") for name in list(_file_systems(self.place)))
        yield from (arn("lambda", f"function:{function.function_name}") for function in _functions(self.place))
        buckets = list(s3_backends[account][self.place.partition].buckets)
        yield from (f"arn:{self.place.partition}:s3:::{name}" for name in buckets)

    def _read_profile(self, name: str) -> Any:
        profiles = iam_backends[self.account_id][self.place.partition].instance_profiles.values()
        return next((profile for profile in list(profiles) if name in (profile.arn, profile.name)), None)

    def _read_roles(self) -> list[Any]:
        return list(iam_backends[self.account_id][self.place.partition].roles.values())


def _describe_group(group: ScalingGroup | None) -> tuple[str, Mapping[str, str]] | None:
    return None if group is None else (group.arn, {tag.key: tag.value for tag in group.tags})


_FINDERS: Mapping[str, Callable[[Place, str], Any]] = {
    "sqs": lambda at, name: sqs_backends[at.account][at.region].queues.get(name),
    "sns": lambda at, name: sns_backends[at.account][at.region].topics.get(at.arn("sns", name)),
    "s3": lambda at, name: s3_backends[at.account][at.partition].buckets.get(name.partition("/")[0]),
    "dynamodb": lambda at, name: dynamodb_backends[at.account][at.region].tables.get(name.partition("/")[2]),
    "kms": lambda at, name: kms_backends[at.account][at.region].keys.get(name.partition("/")[2]),
    "elasticfilesystem": lambda at, name: _file_systems(at).get(name.partition("/")[2]),
    "backup": lambda at, name: backup_backends[at.account][at.region].vaults.get(name.partition(":")[2]),
    "lambda": lambda at, name: next((one for one in _functions(at) if one.function_name == name.split(":")[1]), None),
}
"""Return moto's resource by the last part of its ARN; None where there is none."""
_QUEUE_KEY = "kms_master_key_id"
_KEYS = {"sqs": _QUEUE_KEY, "sns": _QUEUE_KEY, "lambda": "kms_key_arn", "backup": "encryption_key_arn"}
_POLICIES = dict.fromkeys(("sqs", "sns", "s3", "kms"), "policy") | {"elasticfilesystem": "file_system_policy"}


def _functions(place: Place) -> Any:
    return lambda_backends[place.account][place.region].list_functions()


def _file_systems(place: Place) -> Any:
    return efs_backends[place.account][place.region].file_systems_by_id


def _find_resource(place: Place, arn: str) -> tuple[str, Any]:
    service, name = arn.split(":")[2], arn.split(":", 5)[5]
    find = _FINDERS.get(service)
    return service, find(place, name) if find else None


def _read_key(service: str, resource: Any) -> Any:
    if service == "dynamodb":
        return (getattr(resource, "sse_specification", None) or {}).get("KMSMasterKeyId")
    if service == "s3":
        rule = (getattr(resource, "encryption", None) or {}).get("Rule", {})
        return rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
    return getattr(resource, _KEYS.get(service, ""), None)


def _read_policy(service: str, resource: Any) -> Any:
    if service == "lambda":
        statements = resource.policy.statements if resource else None
        return {"Version": "2012-10-17", "Statement": statements} if statements else None
    return getattr(resource, _POLICIES.get(service, ""), None)


def _text(policy: Any) -> str:
    if isinstance(policy, bytes):
        return policy.decode()
    return policy if isinstance(policy, str) else json.dumps(policy)
