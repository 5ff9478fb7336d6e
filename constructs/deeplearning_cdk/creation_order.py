"""The order in which resources are made, without what their references already say."""

import json
import re
from typing import Any

import jsii
from aws_cdk import CfnResource, IStableAnyProducer, Lazy, Stack
from constructs import IConstruct


def prune_dependencies(construct: IConstruct) -> None:
    """
    Leave out of a resource's `DependsOn` what its properties refer to.

    The CDK repeats them, and linters warn of each (cfn-lint W3005).

    Args:
        construct: The resource, or the construct whose default child it is.
    """
    resource: Any = construct if CfnResource.is_cfn_resource(construct) else construct.node.default_child
    resource.add_override("DependsOn", Lazy.any(_Needed(resource)))


@jsii.implements(IStableAnyProducer)
class _Needed:
    """Tells, once the template is written, what a resource must wait for besides what it refers to."""

    def __init__(self, resource: CfnResource) -> None:
        self._resource = resource

    def produce(self) -> Any:
        """Return the logical ids; None without any."""
        stack = Stack.of(self._resource)
        properties = json.dumps(stack.resolve(self._resource._cfn_properties))  # noqa: SLF001 - CDK offers no other way
        referred = set(re.findall(r'"(?:Ref": |Fn::GetAtt": \[)"(\w+)"', properties))
        # A resource of another stack has no id here; the CDK makes the stacks themselves wait for each other.
        found = [
            each
            for each in self._resource.obtain_dependencies()
            if isinstance(each, CfnResource) and each.stack is stack
        ]
        names: list[str] = stack.resolve([each.logical_id for each in found])
        return sorted(set(names) - referred) or None
