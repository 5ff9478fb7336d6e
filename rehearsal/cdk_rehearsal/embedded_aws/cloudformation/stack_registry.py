"""The stacks of an account and region, and what they export to one another."""

import threading
from collections.abc import Collection, Mapping
from typing import Generic, Protocol, TypeVar

from cdk_rehearsal.errors import AssemblyError


class ListedStack(Protocol):
    """A stack as the registry reads it."""

    name: str
    arn: str
    status: str
    outputs: Mapping[str, str]
    exports: Mapping[str, str]

    @property
    def imports(self) -> Collection[str]:
        """Names of the exports of other stacks that it uses."""


AnyStack = TypeVar("AnyStack", bound=ListedStack)


class StackRegistry(Generic[AnyStack]):
    """Stacks in the order of their creation, nested ones too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stacks: list[AnyStack] = []

    def add(self, stack: AnyStack) -> None:
        """Take a stack up."""
        with self._lock:
            self._stacks.append(stack)

    def list(self) -> tuple[AnyStack, ...]:
        """Return all stacks, deleted ones too."""
        with self._lock:
            return tuple(self._stacks)

    def find(self, name: str) -> AnyStack | None:
        """Return a stack by its name or ARN; None where there is none. A deleted stack is found by its ARN alone."""
        for stack in reversed(self.list()):
            if name == stack.arn or (name == stack.name and stack.status != "DELETE_COMPLETE"):
                return stack
        return None

    def find_exports(self) -> Mapping[str, tuple[AnyStack, str]]:
        """Return what complete stacks export: name -> stack and value."""
        return {
            name: (stack, value)
            for stack in self.list()
            if stack.status != "DELETE_COMPLETE"
            for name, value in stack.exports.items()
        }

    def find_importers(self, stack: AnyStack) -> Mapping[str, AnyStack]:
        """Return which exports of a stack other stacks import: name -> one that does."""
        return {
            name: other
            for other in self.list()
            if other.status != "DELETE_COMPLETE"
            for name in stack.exports.keys() & set(other.imports)
        }

    def import_value(self, name: str) -> str:
        """Return an exported value; AssemblyError, in CloudFormation's words, where no stack exports it."""
        exports = self.find_exports()
        if name not in exports:
            raise AssemblyError(f"No export named {name} found.")
        return exports[name][1]

    def read_output(self, stack_name: str, output: str) -> str:
        """Return an output of a complete stack; AssemblyError where there is no such stack or output."""
        stack = self.find(stack_name)
        if stack is None:
            raise AssemblyError(f"Fn::GetStackOutput: stack {stack_name} does not exist")
        if output not in stack.outputs:
            raise AssemblyError(f"Fn::GetStackOutput: stack {stack_name} has no output {output}")
        return stack.outputs[output]
