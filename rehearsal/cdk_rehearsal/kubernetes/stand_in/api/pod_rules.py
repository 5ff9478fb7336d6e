"""Rules of pods, as far as the stand-in takes their fields (pkg/apis/core/validation of Kubernetes)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.rules import (
    check_choice,
    check_expression,
    check_key,
    check_labels,
    check_name,
    check_resources,
    check_selector,
    check_value,
    forbid,
    invalid,
    require,
)
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest
from cdk_rehearsal.kubernetes.stand_in.base.selectors import read_quantity

_MOST_PORT = 65_535
_PATHS = re.compile(
    r"metadata\.(name|namespace|uid|labels|annotations)|metadata\.(labels|annotations)\['[^']*'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
_VARIABLE = re.compile(r"[ -<>-~]+")
_OPEN = ("terminationGracePeriodSeconds", "activeDeadlineSeconds", "nodeName")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Spec = Mapping[str, Any]


def check_pod(spec: Spec, at: str) -> Iterator[str]:
    """Yield what is wrong with the specification of a pod."""
    yield from _check_volumes(spec.get("volumes", ()), f"{at}.volumes")
    if not spec.get("containers"):
        yield require(f"{at}.containers")
    seen: set[str] = set()
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(kind, ())):
            where = f"{at}.{kind}[{number}]"
            if container.get("name") in seen:
                yield f'{where}.name: Duplicate value: "{container["name"]}"'
            seen.add(container.get("name", ""))
            yield from _check_container(container, spec, where)
    yield from check_choice(f"{at}.restartPolicy", spec["restartPolicy"], ("Always", "Never", "OnFailure"))
    yield from check_choice(
        f"{at}.dnsPolicy", spec["dnsPolicy"], ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
    )
    yield from check_labels(f"{at}.nodeSelector", spec.get("nodeSelector", {}))
    if spec.get("serviceAccountName"):
        yield from check_name(f"{at}.serviceAccountName", spec["serviceAccountName"])
    if spec.get("hostname"):
        yield from check_name(f"{at}.hostname", spec["hostname"], is_label=True)
    for number, toleration in enumerate(spec.get("tolerations", ())):
        yield from _check_toleration(toleration, f"{at}.tolerations[{number}]")
    yield from _check_affinity(spec.get("affinity", {}), f"{at}.affinity")


def _check_volumes(volumes: Any, at: str) -> Iterator[str]:
    seen: set[str] = set()
    for number, volume in enumerate(volumes):
        where = f"{at}[{number}]"
        kinds = [name for name in volume if name != "name"]
        for kind in kinds[1:]:
            yield forbid(f"{where}.{kind}", "may not specify more than 1 volume type")
        if not kinds:
            yield require(where, "must specify a volume type")
        size = volume.get("emptyDir", {}).get("sizeLimit")
        if size is not None and read_quantity(size) < 0:
            yield forbid(f"{where}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")
        for kind, name in (("persistentVolumeClaim", "claimName"), ("configMap", "name"), ("hostPath", "path")):
            if kind in volume and not volume[kind].get(name):
                yield require(f"{where}.{kind}.{name}")
        yield from check_name(f"{where}.name", volume.get("name", ""), is_label=True)
        if volume.get("name") in seen:
            yield f'{where}.name: Duplicate value: "{volume["name"]}"'
        seen.add(volume.get("name", ""))


def _check_container(container: Spec, spec: Spec, at: str) -> Iterator[str]:
    yield from check_name(f"{at}.name", container.get("name", ""), is_label=True)
    image = container.get("image", "")
    if not image:
        yield require(f"{at}.image")
    elif image != image.strip():
        yield invalid(f"{at}.image", image, "must not have leading or trailing whitespace")
    policies = ("Always", "IfNotPresent", "Never")
    yield from check_choice(f"{at}.imagePullPolicy", container["imagePullPolicy"], policies)
    kinds = ("FallbackToLogsOnError", "File")
    yield from check_choice(f"{at}.terminationMessagePolicy", container["terminationMessagePolicy"], kinds)
    for number, variable in enumerate(container.get("env", ())):
        yield from _check_variable(variable, f"{at}.env[{number}]")
    yield from _check_mounts(container, spec, at)
    yield from _check_ports(container.get("ports", ()), spec, f"{at}.ports")
    yield from check_resources(f"{at}.resources", container.get("resources", {}))
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is False:
        rule = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            yield invalid(f"{at}.securityContext", dict(context), f"{rule} `privileged` to true")
        if "CAP_SYS_ADMIN" in context.get("capabilities", {}).get("add", ()):
            yield invalid(f"{at}.securityContext", dict(context), f"{rule} `capabilities.Add` CAP_SYS_ADMIN")


def _check_variable(variable: Spec, at: str) -> Iterator[str]:
    name, source = variable.get("name", ""), variable.get("valueFrom")
    if not name:
        yield require(f"{at}.name")
    elif not _VARIABLE.fullmatch(name):
        yield invalid(
            f"{at}.name",
            name,
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        )
    if source is None:
        return
    if variable.get("value"):
        yield invalid(f"{at}.valueFrom", "", "may not be specified when `value` is not empty")
    if len(source) != 1:
        words = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(
            f"{at}.valueFrom", "", "may not have more than one field specified at a time" if source else words
        )
    path = source.get("fieldRef", {}).get("fieldPath")
    if "fieldRef" in source and not path:
        yield require(f"{at}.valueFrom.fieldRef.fieldPath")
    elif path and not _PATHS.fullmatch(path):
        yield invalid(
            f"{at}.valueFrom.fieldRef.fieldPath", path, "error converting fieldPath: field label not supported"
        )


def _check_mounts(container: Spec, spec: Spec, at: str) -> Iterator[str]:
    names = {volume.get("name") for volume in spec.get("volumes", ())}
    paths: set[str] = set()
    for number, mount in enumerate(container.get("volumeMounts", ())):
        where = f"{at}.volumeMounts[{number}]"
        if mount.get("name") not in names:
            yield f'{where}.name: Not found: "{mount.get("name", "")}"'
        path = mount.get("mountPath", "")
        if not path:
            yield require(f"{where}.mountPath")
        if path in paths:
            yield invalid(f"{where}.mountPath", path, "must be unique")
        paths.add(path)


def _check_ports(ports: Any, spec: Spec, at: str) -> Iterator[str]:
    names: set[str] = set()
    for number, port in enumerate(ports):
        where, name = f"{at}[{number}]", port.get("name")
        if name in names:
            yield f'{where}.name: Duplicate value: "{name}"'
        names |= {name} if name else set()
        if name and not (re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", name) and re.search("[a-z]", name)):
            yield invalid(
                f"{where}.name", name, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            )
        inside, outside = port.get("containerPort", 0), port.get("hostPort", 0)
        if not 0 < inside <= _MOST_PORT:
            yield invalid(f"{where}.containerPort", inside, f"must be between 1 and {_MOST_PORT}, inclusive")
        if outside and not 0 < outside <= _MOST_PORT:
            yield invalid(f"{where}.hostPort", outside, f"must be between 1 and {_MOST_PORT}, inclusive")
        elif outside and spec.get("hostNetwork") and outside != inside:
            yield invalid(f"{where}.hostPort", outside, "must match `containerPort` when `hostNetwork` is true")
        yield from check_choice(f"{where}.protocol", port.get("protocol", "TCP"), ("SCTP", "TCP", "UDP"))


def _check_toleration(toleration: Spec, at: str) -> Iterator[str]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal") or "Equal"
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        yield from check_key(f"{at}.key", key)
    elif operator != "Exists":
        rule = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{at}.operator", operator, rule)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield invalid(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator == "Equal":
        yield from check_value(f"{at}.operator", value)
    elif operator == "Exists":
        if value:
            yield invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        yield from check_choice(f"{at}.operator", operator, ("Equal", "Exists"))
    if effect:
        yield from check_choice(f"{at}.effect", effect, ("NoExecute", "NoSchedule", "PreferNoSchedule"))


def _check_affinity(affinity: Spec, at: str) -> Iterator[str]:
    required = affinity.get("nodeAffinity", {}).get(_REQUIRED)
    if required is not None:
        where = f"{at}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        if not required.get("nodeSelectorTerms"):
            yield require(where, "must have at least one node selector term")
        for number, term in enumerate(required.get("nodeSelectorTerms", ())):
            for kind in ("matchExpressions", "matchFields"):
                for place, each in enumerate(term.get(kind, ())):
                    yield from check_expression(f"{where}[{number}].{kind}[{place}]", each, "node")
    for kind in ("podAffinity", "podAntiAffinity"):
        for number, term in enumerate(affinity.get(kind, {}).get(_REQUIRED, ())):
            where = f"{at}.{kind}.{_REQUIRED}[{number}]"
            if not term.get("topologyKey"):
                yield require(f"{where}.topologyKey", "can not be empty")
            else:
                yield from check_key(f"{where}.topologyKey", term["topologyKey"])
            if "labelSelector" in term:
                yield from check_selector(f"{where}.labelSelector", term["labelSelector"])


def check_fixed_pod(pod: Manifest, before: Manifest) -> Iterator[str]:
    """Yield that an update changes a pod otherwise than the server lets it: its image, and further tolerations."""
    new, old = dict(pod["spec"]), dict(before["spec"])
    for spec in (new, old):
        spec["containers"] = [{**each, "image": ""} for each in spec.get("containers", ())]
    for name in _OPEN:
        if name not in old or name == "terminationGracePeriodSeconds":
            old.pop(name, None)
            new.pop(name, None)
    if all(each in new.get("tolerations", ()) for each in old.get("tolerations", ())):
        new.pop("tolerations", None)
        old.pop("tolerations", None)
    if new != old:
        words = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        words += "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
        words += "(allow it to be set to 1 if it was previously negative)"
        yield forbid("spec", f"pod updates may not change fields other than {words}")
