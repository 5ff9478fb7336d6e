"""Platforms whose jobs bring their nodes, so that a stack has a submission document alone."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.errors import AssemblyError
from deeplearning_rehearsal.intrinsics import map_literals, read_literals
from deeplearning_rehearsal.platforms.platform import Platform

_PARAMETER = "AWS::SSM::Parameter"
_MEMBERS = re.compile(r'("members":)([0-9]+)')


class JobPlatform(Platform):
    """
    Jobs of which each brings its nodes.

    Attributes:
        name: Name of the platform in the submission document.
        settings_key: Key of the platform's settings in it.
        jobs: What the jobs are called.
    """

    name: str
    settings_key: str
    jobs: str
    runs_containers = True
    gpus_per_node = 2
    gpu_key = "gpu_count"

    def owns(self, template: Mapping[str, Any]) -> bool:
        """Return whether a template has a submission document for the jobs."""
        return any(True for _ in self.list_settings(template))

    def count_nodes(self, template: Mapping[str, Any]) -> int:
        """Return the nodes of a job that names no number."""
        found = (_MEMBERS.search(read_literals(place[key])) for place, key in self.list_settings(template))
        return sum(int(match[2]) for match in found if match)

    def require_nodes(self, template: Mapping[str, Any], nodes: int) -> None:
        """Take every number of nodes."""

    def resize(self, template: dict[str, Any], workers: int) -> dict[str, str]:
        """Set the nodes of a job in a template, and return path -> new value; AssemblyError if it has none."""
        listing = {}
        for place, key in self.list_settings(template):
            place[key] = map_literals(place[key], lambda text: _MEMBERS.sub(rf"\g<1>{workers + 1}", text))
            listing[f"{self.settings_key}.members"] = str(workers + 1)
        if not listing:
            raise AssemblyError(f"the stack must have {self.jobs}, got none; choose another one with --stack NAME")
        return listing

    def list_settings(self, template: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the submission documents."""
        own = f'"platform":"{self.name}"'
        for resource in template.get("Resources", {}).values():
            if resource["Type"] == _PARAMETER and own in read_literals(resource["Properties"]["Value"]):
                yield resource["Properties"], "Value"
