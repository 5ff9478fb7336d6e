"""The rehearsed template: the nodes that it asks for, the settings that it gives them, and the changes made to it."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import AssemblyError, UnavailableError
from deeplearning_contract.document import read_record
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_REQUEST = "Custom::RequestedCapacity"
_EMR_CLUSTER = "AWS::EMR::Cluster"
_PARAMETER = "AWS::SSM::Parameter"

WORKER_MINIMUM_VARIABLE = "DEEPLEARNING_WORKER_MIN_CAPACITY"
"""Variable of the capacity adjuster's environment that holds the fewest workers."""
TORCH = "torch==2.13.0"
"""Found on the host as a build for the CPU; a version without a local part takes `2.13.0+cpu` too (PEP 440)."""

_REASON = "these nodes have no GPU"
_GPU_COUNT = re.compile(r'("expected_gpu_count":\s*)([1-9]\d*)')
_CAPABILITY = re.compile(r'("compute_capability":\s*)"([^"]+)"')
_KEY = '"environment":'


def count_requested(template: Mapping[str, Any]) -> int:
    """Return the nodes that a template asks for, in its request for capacity, in its groups, or on EMR."""
    resources = [(each["Type"], each["Properties"]) for each in template["Resources"].values() if "Properties" in each]
    asked = sum(int(wanted["Master"]) + int(wanted["Workers"]) for kind, wanted in resources if kind == _REQUEST)
    sizes = [group.get("DesiredCapacity", group.get("MinSize", 0)) for kind, group in resources if kind == _GROUP]
    sizes += [
        group["InstanceCount"] for kind, cluster in resources if kind == _EMR_CLUSTER for group in _groups(cluster)
    ]
    return asked or sum(int(size) for size in sizes)


def require_cluster(stack: AssemblyStack) -> None:
    """Raise AssemblyError if the stack has no cluster on EMR, and no Auto Scaling group of it is a master's."""
    if any(each["Type"] == _EMR_CLUSTER for each in stack.template["Resources"].values()):
        return
    groups = (each for each in stack.template["Resources"].values() if each["Type"] == _GROUP)
    tags = (tag for group in groups for tag in group["Properties"].get("Tags", ()))
    if not any(tag["Key"] == ROLE_TAG and tag["Value"] == NodeRole.MASTER.value for tag in tags):
        raise AssemblyError(
            f"stack must have a cluster, got {stack.name} without an Auto Scaling group that is tagged {ROLE_TAG}="
            f"{NodeRole.MASTER.value}; choose another one with --stack NAME, or add a TrainingCluster to it"
        )


def require_worker_minimum(template: Mapping[str, Any], nodes: int | None) -> None:
    """Raise UnavailableError if the stack's own minimum is higher than this number of nodes, master included."""
    if nodes is None:
        return
    for resource in template["Resources"].values():
        if resource["Type"] == _EMR_CLUSTER and nodes == 1:
            raise UnavailableError(
                "--nodes must be at least 2 on EMR, the primary and a core node, got 1; leave it out, or raise it"
            )
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        variables = resource["Properties"].get("Environment", {}).get("Variables", {})
        fewest = variables.get(WORKER_MINIMUM_VARIABLE)
        if isinstance(fewest, str) and fewest.isdigit() and nodes - 1 < int(fewest):
            raise UnavailableError(
                f"--nodes must be at least {int(fewest) + 1}, the master and the stack's workers.min_capacity of "
                f"{fewest}, got {nodes}; raise it, or synthesize with a lower workers.min_capacity"
            )


def count_gpus(template: Mapping[str, Any]) -> int:
    """Return the most GPUs that the settings of a template's nodes expect; 0 where no type of instance has any."""
    texts = [read_literals(place[key]) for place, key in find_settings(template)]
    return max((int(found[2]) for text in texts for found in _GPU_COUNT.finditer(text)), default=0)


def apply_overrides(
    template: Mapping[str, Any], workers: int | None, gpus: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Set the number of workers in a copy of a template, and what a machine without GPUs can have.

    The maximum of the workers' group is raised where it is lower. A node expects the GPUs that it shows, as on AWS:
    otherwise each would warn of a difference that the rehearsal itself makes.

    Args:
        template: As `cdk synth` wrote it.
        workers: Number of workers; None leaves that of the template.
        gpus: GPUs that each node shows; with 0, a node of a type with GPUs goes on missing them.

    Returns:
        The template, and path -> new value.

    Raises:
        AssemblyError: The template has no group of workers, or has several that ask for themselves.
    """
    changed = copy.deepcopy(dict(template))
    listing = override_environment(changed) | _override_gpus(changed, gpus)
    if workers is None:
        return changed, listing
    if on_emr := [name for name, each in changed["Resources"].items() if each["Type"] == _EMR_CLUSTER]:
        for name in on_emr:
            core = changed["Resources"][name]["Properties"]["Instances"]["CoreInstanceGroup"]
            core["InstanceCount"] = listing[f"{name}.CoreInstanceGroup.InstanceCount"] = str(workers)
        return changed, listing
    groups = {
        name: resource["Properties"]
        for name, resource in changed.get("Resources", {}).items()
        if resource.get("Type") == _GROUP and _has_role(resource, NodeRole.WORKER)
    }
    requests = {
        request: resource["Properties"]
        for request, resource in changed["Resources"].items()
        if resource.get("Type") == _REQUEST
    }
    if not groups or (len(groups) > 1 and not requests):
        raise AssemblyError(
            f"the template must have {'a' if requests else 'one'} group tagged {ROLE_TAG}={NodeRole.WORKER.value} to "
            f"set its size, got {sorted(groups)}"
        )
    for request, wanted in requests.items():
        wanted["Workers"] = listing[f"{request}.Workers"] = str(workers)
    for name, properties in groups.items():
        if not requests:  # Of a template whose groups ask for themselves.
            properties["DesiredCapacity"] = listing[f"{name}.DesiredCapacity"] = str(workers)
        if int(properties["MaxSize"]) < workers:  # The stack asks one of them; each may be that.
            properties["MaxSize"] = listing[f"{name}.MaxSize"] = str(workers)
    return changed, listing


def _groups(cluster: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the instance groups of a cluster on EMR."""
    return [cluster["Instances"][name] for name in ("MasterInstanceGroup", "CoreInstanceGroup")]


def _has_role(resource: Mapping[str, Any], role: NodeRole) -> bool:
    tags = resource.get("Properties", {}).get("Tags", [])
    return any(tag.get("Key") == ROLE_TAG and tag.get("Value") == role.value for tag in tags)


def choose_framework(framework: str) -> str:
    """Return what is installed in place of a pinned framework: PyTorch becomes the one for the CPU."""
    return TORCH if re.match(r"torch\b", framework) else framework


def override_environment(template: dict[str, Any]) -> dict[str, str]:
    """
    Change the nodes' settings in a template whose environment is Horovod's; return setting -> new value.
    """
    environment = find_environment(template)
    if environment is None or environment.kind != "horovod":
        return {}
    listing = {}
    framework = choose_framework(environment.framework)
    if framework != environment.framework:
        listing["environment.framework"] = f"{framework}, was {environment.framework}: {_REASON}"
    written = re.compile(rf'("framework":\s*)"{re.escape(environment.framework)}"')

    def change(text: str) -> str:
        for found in _CAPABILITY.finditer(text):
            listing["hardware.compute_capability"] = f"none, was {found[2]}: {_REASON}"
        return _CAPABILITY.sub(r'\1""', written.sub(rf'\1"{framework}"', text))

    for place, key in find_settings(template):
        place[key] = map_literals(place[key], change)
    return listing


def _override_gpus(template: dict[str, Any], gpus: int) -> dict[str, str]:
    """Change in a template how many GPUs its nodes expect; return setting -> new value."""
    listing = {}

    def change(found: re.Match[str]) -> str:
        if int(found[2]) != gpus:
            listing["expected_gpu_count"] = f"{gpus}, was {found[2]}: so many does the nvidia-smi of the nodes show"
        return f"{found[1]}{gpus}"

    for place, key in find_settings(template) if gpus else ():
        place[key] = map_literals(place[key], lambda text: _GPU_COUNT.sub(change, text))
    return listing


def find_environment(template: Mapping[str, Any]) -> EnvironmentSettings | None:
    """Return the environment that the nodes' settings ask for; None for the image's own."""
    for place, key in find_settings(template):
        text = read_literals(place[key])
        if _KEY in text:
            start = text.index(_KEY) + len(_KEY)
            document = json.JSONDecoder().raw_decode(text[start:].lstrip())[0]
            return None if document is None else read_record(EnvironmentSettings, document, "environment")
    return None


def find_settings(template: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield where nodes get their settings, as containers with keys: user data, and what bootstrap actions read."""
    resources = template.get("Resources", {})
    for resource in resources.values():
        if resource["Type"] == "AWS::EC2::LaunchTemplate":
            data = resource["Properties"]["LaunchTemplateData"]
            if "UserData" in data:
                yield data, "UserData"
        if resource["Type"] == _EMR_CLUSTER:
            for action in resource["Properties"].get("BootstrapActions", ()):
                for argument in action["ScriptBootstrapAction"].get("Args", []):
                    named = resources.get(argument.get("Ref"), {}) if isinstance(argument, dict) else {}
                    if named.get("Type") == _PARAMETER:
                        yield named["Properties"], "Value"


def read_literals(value: Any) -> str:
    """Return the text of an intrinsic; what is known at deployment only is left out."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    map_literals(value, keep)
    return "".join(texts)


def map_literals(value: Any, change: Callable[[str], str]) -> Any:
    """Return an intrinsic whose literal texts are changed; what is known at deployment only stays."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict) and "Fn::Base64" in value:
        return {"Fn::Base64": map_literals(value["Fn::Base64"], change)}
    if isinstance(value, dict) and "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return {"Fn::Join": [separator, [change(part) if isinstance(part, str) else part for part in parts]]}
    return value
