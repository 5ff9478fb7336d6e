"""Version of the CDK's bootstrap stack, which a deployment requires of account and region."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deeplearning_cli.account.answers import Refused, ask, read_parameter
from deeplearning_cli.account.finding import Finding

_DEFAULT_QUALIFIER = "hnb659fds"


@dataclass(frozen=True)
class Bootstrap:
    """Parameter of Systems Manager that has the version of a bootstrap stack, and the least that stacks require."""

    parameter: str
    version: int


def list_bootstraps(properties: Sequence[Mapping[str, Any]]) -> tuple[Bootstrap, ...]:
    """
    Return what stacks require, by the properties of their artifacts; those of legacy stacks require nothing.

    Source: aws-cdk, cloud-assembly-schema, `AwsCloudFormationStackProperties`.
    """
    versions: dict[str, int] = {}
    for each in properties:
        if name := each.get("bootstrapStackVersionSsmParameter"):
            versions[name] = max(versions.get(name, 0), int(each.get("requiresBootstrapStackVersion", 0)))
    return tuple(Bootstrap(name, version) for name, version in versions.items() if version)


def read_versions(clients: Callable[[str], Any], bootstraps: Sequence[Bootstrap]) -> dict[str, str | Refused | None]:
    """Return parameter -> version; None where there is none."""
    return {each.parameter: ask(partial(read_parameter, clients, each.parameter)) for each in bootstraps}


def judge_bootstraps(
    bootstraps: Sequence[Bootstrap], versions: Mapping[str, str | Refused | None], environment: str
) -> Iterator[Finding]:
    """Judge the bootstrap stacks of an environment, `aws://account/region`."""
    for each in bootstraps:
        subject, found = f"bootstrap {each.parameter}", versions[each.parameter]
        needs = f"the stack requires version {each.version}"
        if isinstance(found, Refused):
            yield Finding.refused(subject, found, "ssm:GetParameter")
        elif found is None:
            yield Finding(subject, "wrong", f"{needs}, the region has none", _find_command(each, environment))
        elif int(found) < each.version:
            yield Finding(subject, "wrong", f"{needs}, the region has {found}", _find_command(each, environment))
        else:
            yield Finding(subject, "ok", f"{needs}, the region has {found}")


def _find_command(bootstrap: Bootstrap, environment: str) -> str:
    found = re.fullmatch(r"/cdk-bootstrap/([^/]+)/version", bootstrap.parameter)
    is_default = found is None or found[1] == _DEFAULT_QUALIFIER
    return f"cdk bootstrap {environment}" + ("" if is_default or found is None else f" --qualifier {found[1]}")
