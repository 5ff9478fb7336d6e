"""Admits a call when the deployed policies allow it, and records the decision."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket

from cdk_rehearsal.embedded_aws.access.account_state import AccountState
from cdk_rehearsal.embedded_aws.access.endpoints import find_endpoint_policy, find_instance_subnet
from cdk_rehearsal.embedded_aws.access.managed_policies import read_managed_policy
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.base.request import SignedRequest, read_parameters
from cdk_rehearsal.embedded_aws.base.stack_record import StackResource
from cdk_rehearsal.errors import PolicyError, UnknownOperationError
from cdk_rehearsal.iam.call_record import CallRecord
from cdk_rehearsal.iam.evaluation import Decision, evaluate, explain_denial
from cdk_rehearsal.iam.limits import NO_LIMITS, Document, Limits
from cdk_rehearsal.iam.operations import RequiredAction, find_needs
from cdk_rehearsal.iam.policy import Statement, read_policy_text
from cdk_rehearsal.iam.request import Caller, Request, make_context

RIGHTS_FILE = "calls.json"
AUTO_SCALING = "autoscaling.amazonaws.com"
_NAMED_AFTER_OTHERS = frozenset({"AWS::IAM::InstanceProfile", "AWS::S3::BucketPolicy"})
"""Types of which a physical id may be that of the role or bucket that has the rights."""
_AUTO_SCALING_ROLE = "AWSServiceRoleForAutoScaling"
AUTO_SCALING_POLICY = "AutoScalingServiceRolePolicy"


@dataclass(frozen=True)
class Denial:
    """A refusal in the words of AWS: of the use of a key where `is_about_key`, else of the call itself."""

    message: str
    is_about_key: bool


class Authorizer:
    """Decides calls by the policies of the deployed account, and records each decision."""

    def __init__(
        self,
        state: AccountState,
        record: CallRecord,
        observations: Observations,
        organization: tuple[Document, ...] = (),
    ) -> None:
        self.state = state
        self.record = record
        self._observations = observations
        self._organization = organization

    def check(self, principal: Principal, operation: str, request: SignedRequest) -> Denial | None:
        """Decide a call, `service.Operation`: return why it is refused, None when it may go on."""
        service = operation.partition(".")[0]
        return self.check_call(principal, operation, read_parameters(service, request))

    def check_call(self, principal: Principal, operation: str, parameters: Mapping[str, object]) -> Denial | None:
        """Decide a call whose parameters are known."""
        try:
            needs = find_needs(operation, parameters, self.state)
            caller = self._describe(principal)
            for need in needs:
                if (denial := self._decide(principal.kind, caller, need, principal.name)) is not None:
                    return denial
        except (PolicyError, UnknownOperationError) as error:
            self.note_failure(principal, operation, str(error))
            return Denial(str(error), is_about_key=False)
        return None

    def note_failure(self, principal: Principal, operation: str, message: str) -> None:
        """Record that a call failed which must not, though no policy denied it."""
        self.record.refuse(principal.kind, operation, message)
        self._observations.report("refusal", principal.name, f"{operation}: {message}")

    def admits_notification(self, topic_arn: str) -> bool:
        """Return whether Auto Scaling's service-linked role may publish to a topic, and use its key."""
        return self._admits_auto_scaling(find_needs("sns.Publish", {"TopicArn": topic_arn}, self.state))

    def admits_volume(self, key_arn: str) -> bool:
        """
        Return whether Auto Scaling's service-linked role may make a volume with a key.

        The actions are those of the EBS user guide ("Permissions for EBS encryption") and of the EC2 Auto Scaling user
        guide ("Required AWS KMS key policy for use with encrypted volumes").
        """
        if self.state.find_resource_policy(key_arn) is None:
            return True  # the rehearsal takes it that a key of the user's own, whose policy it cannot read, is in order
        return self._admits_auto_scaling(find_needs("ec2.EncryptVolume", {"SSEKMSKeyId": key_arn}, self.state))

    def _admits_auto_scaling(self, needs: Iterable[RequiredAction]) -> bool:
        caller = Caller(
            arn=f"arn:aws:sts::{self.state.account_id}:assumed-role/{_AUTO_SCALING_ROLE}/AutoScaling",
            account=self.state.account_id,
            role_arn=self.state.arn("iam", f"role/aws-service-role/{AUTO_SCALING}/{_AUTO_SCALING_ROLE}").replace(
                f":{self.state.region}:", "::"
            ),
        )
        return all(self._decide("service", caller, need, AUTO_SCALING) is None for need in needs)

    def admits_service(
        self, service: str, operation: str, parameters: Mapping[str, object], *, source_arn: str = ""
    ) -> bool:
        """
        Return whether a service may make a call by itself; a refusal is reported.

        The source is known to the called resource alone: that EventBridge tells KMS one when it sends to a queue is
        documented nowhere, and to an encrypted topic it does not (SNS developer guide, "Key management").
        """
        source = {"aws:SourceArn": source_arn, "aws:SourceAccount": self.state.account_id} if source_arn else {}
        caller = Caller.of_service(service)
        for need in find_needs(operation, parameters, self.state):
            if need.is_implied and self.state.find_resource_policy(need.resource) is None:
                continue  # the policy of a key of the user's own cannot be read; it is taken to be in order
            known = need if need.is_implied else replace(need, context={**need.context, **source})
            if self._decide("service", caller, known, service) is not None:
                return False
        return True

    def admits_anonymous_mount(self, file_system_id: str) -> bool:
        """
        Return whether an EFS file system lets a client mount it without IAM and without TLS.

        Without a policy it does; a policy must allow anybody to mount (EFS user guide, "Using IAM to control file
        system data access").
        """
        arn = self.state.arn("elasticfilesystem", f"file-system/{file_system_id}")
        policy = self.state.find_resource_policy(arn)
        caller = Caller(arn="anonymous", account=self.state.account_id)
        context = make_context(caller, {"elasticfilesystem:AccessedViaMountTarget": "true"}, is_secure=False)
        request = Request(caller, "elasticfilesystem:ClientMount", arn, context)
        return policy is None or evaluate(request, (), read_policy_text(policy, "resource")).reason == "resource allows"

    def trusts(self, role_arn: str, service: str, source_arn: str = "", tags: Mapping[str, str] | None = None) -> bool:
        """
        Return whether a role exists and lets a service assume it.

        Args:
            role_arn: The role.
            service: The service.
            source_arn: The resource of this account for which it does so. Default: none is known.
            tags: Tags of the session, which need a right of their own. Default: none.
        """
        trust = self.state.find_trust_policy(role_arn)
        if trust is None:
            return False
        source = {"aws:SourceArn": source_arn, "aws:SourceAccount": self.state.account_id} if source_arn else {}
        asked = {f"aws:RequestTag/{key}": value for key, value in (tags or {}).items()}
        keys: dict[str, str | tuple[str, ...]] = {**source, **asked, **({"aws:TagKeys": tuple(tags)} if tags else {})}
        caller = Caller.of_service(service)
        statements = read_policy_text(trust, "resource")
        actions = ("sts:AssumeRole", "sts:TagSession") if tags else ("sts:AssumeRole",)
        requests = (Request(caller, action, role_arn, make_context(caller, keys)) for action in actions)
        return all(evaluate(request, (), statements).is_allowed for request in requests)

    def note_invocation(self, service: str, function_arn: str, source_arn: str) -> None:
        """Record that a service invokes a function; whether it may is the function runner's to decide."""
        source = {"aws:SourceArn": source_arn, "aws:SourceAccount": self.state.account_id}
        need = RequiredAction("lambda:InvokeFunction", function_arn, source)
        self._decide("service", Caller.of_service(service), need, service)

    def _decide(self, kind: str, caller: Caller, need: RequiredAction, name: str) -> Denial | None:
        tags = self.state.find_role_tags(caller.role_arn)
        context = {**need.context, "aws:RequestedRegion": self.state.region}
        # IAM user guide, "AWS global condition context keys": true where a service calls on the caller's behalf.
        context["aws:ViaAWSService"] = str(need.is_implied).lower()
        context |= {f"aws:PrincipalTag/{key}": value for key, value in tags.items()}
        if name.startswith("i-"):
            context["ec2:SourceInstanceARN"] = self.state.arn("ec2", f"instance/{name}")
        request = Request(caller, need.action, need.resource, make_context(caller, context))
        decision = self._evaluate(request, kind)
        self.record.add(kind, request, decision, is_implied=need.is_implied)
        if decision.is_allowed:
            return None
        message = explain_denial(request, decision)
        self._observations.report("refusal", name, message)
        return Denial(message, is_about_key=need.is_implied)

    def _evaluate(self, request: Request, kind: str) -> Decision:
        own: tuple[Statement, ...] = ()
        limits = NO_LIMITS
        if kind == "service" and request.caller.role_arn:
            own = read_policy_text(read_managed_policy(AUTO_SCALING_POLICY), "identity")
        elif kind != "service":
            texts = self.state.list_identity_policies(request.caller.role_arn).values()
            own = tuple(chain.from_iterable(read_policy_text(text, "identity") for text in texts))
            limits = self._find_limits(request)
        policy = self.state.find_resource_policy(request.resource) if request.resource != "*" else None
        return evaluate(request, own, None if policy is None else read_policy_text(policy, "resource"), limits)

    def _find_limits(self, request: Request) -> Limits:
        found = self.state.find_boundary(request.caller.role_arn)
        boundary = Document(found[0], read_policy_text(found[1], "identity")) if found else None
        is_by_service = request.context["aws:viaawsservice"] == ("true",)
        subnet = "" if is_by_service else request.caller.subnet
        endpoint = find_endpoint_policy(self.state.place, subnet, request.action) if subnet else None
        return Limits(boundary, self._organization, endpoint)

    def _describe(self, principal: Principal) -> Caller:
        role = principal.role_arn
        session = role.replace(":iam::", ":sts::").split("/")[0].replace(":role", ":assumed-role")
        return Caller(
            arn=f"{session}/{role.rpartition('/')[2]}/{principal.name}",
            account=self.state.account_id,
            role_arn=role,
            user_id=principal.sender_id,
            subnet=principal.subnet or find_instance_subnet(self.state.place, principal.name),
        )


def install_bucket_decisions() -> None:
    """
    Turn off moto's own decisions by the policies of buckets, which ignore Principal and Condition.

    The authorizer decides by them instead. The replaced method is moto 5.2.5's, which is why moto is pinned exactly.
    """
    FakeBucket.get_permission = lambda *_: PermissionResult.NEUTRAL  # type: ignore[method-assign]


def write_rights(authorizer: Authorizer, case: str, resources: Iterable[StackResource], folder: Path) -> None:
    """Write a case's calls (or those of none) with policies, and logical ids that make ARNs of stacks comparable."""
    document = {"case": case, **_describe(authorizer)}
    named = [each for each in resources if each.physical_id and each.resource_type not in _NAMED_AFTER_OTHERS]
    document["names"] = {each.physical_id: each.logical_id for each in named}
    (folder / RIGHTS_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _describe(authorizer: Authorizer) -> dict[str, Any]:
    record, state = authorizer.record, authorizer.state
    roles = state.list_roles()
    counts = sorted(record.counts().items(), key=lambda entry: (entry[0].kind, entry[0].action, entry[0].resource))
    return {
        "account": state.account_id,
        "region": state.region,
        "calls": [call.to_document() | {"count": count} for call, count in counts],
        "left_out": record.left_out,
        "denials": dict(record.denials()),
        "roles": {role: _parse(state.list_identity_policies(role)) for role in roles},
        "boundaries": {role: _parse(dict([found])) for role in roles if (found := state.find_boundary(role))},
        "resources": _parse(state.list_resource_policies()),
    }


def _parse(policies: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in policies.items()}
