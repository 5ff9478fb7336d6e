"""
The role with which CloudFormation creates resources, and what the policies of an organization leave it.

It is taken to have all rights, as the bootstrap stack of the CDK gives them; service control policies and a boundary
take rights away. Calls that only read are not decided: which of them CloudFormation makes is documented nowhere.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.access.account_state import AccountState
from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.deployment_calls import DeploymentNeed, find_deployment_needs, is_read
from cdk_rehearsal.iam.evaluation import evaluate, explain_denial
from cdk_rehearsal.iam.given_policies import GivenPolicies
from cdk_rehearsal.iam.limits import Limits
from cdk_rehearsal.iam.policy import Statement, read_policy
from cdk_rehearsal.iam.request import Caller, Request, make_context
from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET, Credentials, Place

_SESSION = "AWSCloudFormation"
_ADMINISTRATOR = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_IAM_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""`aws:RequestedRegion` of calls of IAM (IAM user guide, "AWS global condition context keys")."""


class Deployer:
    """
    Decides the calls by which resources are created and deleted.

    Attributes:
        role_arn: The role, which the assembly of a stack names.
    """

    def __init__(self, place: Place, state: AccountState, policies: GivenPolicies) -> None:
        self.role_arn = ""
        self._place = place
        self._state = state
        self._limits = Limits(policies.read_deployment_boundary(), policies.list_organization())
        self._rights = read_policy(_ADMINISTRATOR, "identity")
        self.client = cache(self._make_client) if any(self._limits.list_statements()) else place.client
        """Return a client of a service whose calls are decided."""

    def require(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """
        Raise ClientError, in AWS's words, unless a call may be made.

        Args:
            operation: `service.Operation`.
            parameters: As boto3 takes them.
        """
        if is_read(operation) or not any(self._limits.list_statements()):
            return
        for each in find_deployment_needs(operation, parameters, self._state):
            if message := self._find_refusal(each):
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, operation.partition(".")[2])

    def _make_client(self, service: str) -> Any:
        client = self._place.client_as(service, Credentials(OPERATOR_KEY, OPERATOR_SECRET))
        signing_name = client.meta.service_model.signing_name
        client.meta.events.register("provide-client-params", partial(self._check, signing_name))
        return client

    def _check(self, service: str, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self.require(f"{service}.{model.name}", params)

    def _find_refusal(self, each: DeploymentNeed) -> str:
        """Return why a need is refused; empty when it is not."""
        account = self._place.account
        caller = Caller(
            f"arn:{self._place.partition}:sts::{account}:assumed-role/{self.role_arn.rpartition('/')[2]}/{_SESSION}",
            account,
            self.role_arn,
            user_id=f"AROAREHEARSALDEPLOYER:{_SESSION}",
        )
        is_global = each.need.action.startswith("iam:")
        region = _IAM_REGIONS[self._place.partition] if is_global else self._place.region
        context = make_context(caller, {**each.need.context, "aws:RequestedRegion": region})
        request = Request(caller, each.need.action, each.need.resource, context)
        try:
            for document in self._limits.list_documents():
                for statement in document.statements:
                    _require_decidable(document.name, statement, each, request)
            decision = evaluate(request, self._rights, self._handed_over(request), self._limits)
        except PolicyError as error:
            return str(error)
        return "" if decision.is_allowed else explain_denial(request, decision)

    def _handed_over(self, request: Request) -> tuple[Statement, ...] | None:
        """Return the policy of a key, as if it handed all decisions to the account; that of no other resource."""
        if not request.action.startswith("kms:"):
            return None
        root = {"AWS": self._place.account}
        statement = {"Effect": "Allow", "Principal": root, "Action": "kms:*", "Resource": "*"}
        return read_policy({"Version": "2012-10-17", "Statement": [statement]}, "resource")


def _require_decidable(document: str, statement: Statement, each: DeploymentNeed, request: Request) -> None:
    """Raise PolicyError for a statement that decides by what is not known of a call, rather than pass over it."""
    if not statement.is_about(request.action):
        return
    names_resources = statement.excludes_resources or not all(pattern.is_all for pattern in statement.resources)
    if names_resources and not each.is_resource_known:
        raise PolicyError(f"{document} must not decide {request.action} by its resource, which is not known here")
    if not statement.is_about_resource(request.resource, request.context):
        return
    for key in sorted({condition.key for condition in statement.conditions} - request.context.keys() - each.absent):
        if not key.startswith("aws:") or key.startswith("aws:resourcetag/"):
            raise PolicyError(f"{document} must not decide {request.action} by {key}, which is not known here")
