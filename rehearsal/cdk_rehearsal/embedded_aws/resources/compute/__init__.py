"""Creates what instances come from, and what runs them: templates, single instances and groups."""

from cdk_rehearsal.embedded_aws.resources.compute import groups, instances, scaling, templates
from cdk_rehearsal.embedded_aws.resources.creation import Creator

CREATORS: dict[str, Creator] = templates.CREATORS | instances.CREATORS | groups.CREATORS | scaling.CREATORS
