"""
Pod Security admission: pods that the label of their namespace forbids.

Levels and fields are those of the Kubernetes documentation ("Pod Security Standards", "Pod Security Admission"), the
words those of k8s.io/pod-security-admission.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError, report_unsupported
from cdk_rehearsal.kubernetes.stand_in.base.resources import NAMESPACES, Manifest
from cdk_rehearsal.kubernetes.stand_in.base.store import Store

_PREFIX = "pod-security.kubernetes.io/"
_LEVELS = ("privileged", "baseline", "restricted")
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_LINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)
Template = Mapping[str, Any]
"""Metadata and specification of a pod."""


def require_security(store: Store, pod: Manifest) -> None:
    """Require that the namespace of a pod allows it; ApiError 403 in the words of the server."""
    level = read_level(store, pod["metadata"]["namespace"], "enforce")
    if words := describe_violations(level, pod):
        name = pod["metadata"]["name"]
        message = f'pods "{name}" is forbidden: violates PodSecurity "{level}:latest": {words}'
        raise ApiError(403, "Forbidden", message, {"name": name, "kind": "pods"})


def warn_of_security(store: Store, namespace: str, template: Template) -> str:
    """Return the warning of a namespace about the pods that an object makes; empty for none."""
    level = read_level(store, namespace, "warn") or read_level(store, namespace, "enforce")
    words = describe_violations(level, template)
    return f'would violate PodSecurity "{level}:latest": {words}' if words else ""


def read_level(store: Store, namespace: str, mode: str) -> str:
    """Return the level of a namespace in a mode; empty without a label."""
    found = store.find(NAMESPACES, ("", namespace))
    labels = found["metadata"].get("labels", {}) if found else {}
    version = labels.get(f"{_PREFIX}{mode}-version", "latest")
    level = str(labels.get(f"{_PREFIX}{mode}", ""))
    if version != "latest" or level == "restricted":
        shown = f"{mode}-version={version}" if version != "latest" else f"{mode}={level}"
        raise report_unsupported(f"label {_PREFIX}{shown}")
    return level


def check_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the labels of a namespace."""
    for mode in ("enforce", "audit", "warn"):
        name = f"{_PREFIX}{mode}"
        if (value := labels.get(name, "privileged")) not in _LEVELS:
            yield f'metadata.labels[{name}]: Invalid value: "{value}": must be one of {", ".join(_LEVELS)}'


def describe_violations(level: str, template: Template) -> str:
    """Return what a level forbids of a pod, in the words of the server; empty for nothing."""
    if level in ("", "privileged"):
        return ""
    found = ((reason, detail) for check in _CHECKS for reason, detail in check(template))
    return ", ".join(f"{reason} ({detail})" for reason, detail in found)


def _list_containers(template: Template) -> list[Mapping[str, Any]]:
    spec = template["spec"]
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [each for kind in kinds for each in spec.get(kind, ())]


def _get_context(place: Mapping[str, Any]) -> Mapping[str, Any]:
    return place.get("securityContext") or {}


def _quote(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _count(word: str, names: Sequence[Any]) -> str:
    return word if len(names) == 1 else f"{word}s"


def _name_containers(names: Sequence[str]) -> str:
    return f"{_count('container', names)} {_quote(names)}"


def _find_setters(template: Template, is_bad: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    """Return the words for the pod and the containers whose security context is bad."""
    setters = ["pod"] if is_bad(_get_context(template["spec"])) else []
    names = [each["name"] for each in _list_containers(template) if is_bad(_get_context(each))]
    return [*setters, *([_name_containers(names)] if names else [])]


def _check_app_armor(template: Template) -> Iterator[tuple[str, str]]:
    values: set[str] = set()

    def is_bad(context: Mapping[str, Any]) -> bool:
        kind = context.get("appArmorProfile", {}).get("type", "RuntimeDefault")
        if kind in ("RuntimeDefault", "Localhost"):
            return False
        values.add(kind)
        return True

    setters = _find_setters(template, is_bad)
    annotations = sorted(
        f'{key}="{value}"'
        for key, value in template.get("metadata", {}).get("annotations", {}).items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    setters += [_count("annotation", annotations)] if annotations else []
    found = [*sorted(values), *annotations]
    if setters:
        words = f"{' and '.join(setters)} must not set AppArmor profile type to "
        yield _count("forbidden AppArmor profile", found), words + ", ".join(f'"{each}"' for each in found)


def _check_capabilities(template: Template) -> Iterator[tuple[str, str]]:
    names, found = [], set()
    for container in _list_containers(template):
        added = set(_get_context(container).get("capabilities", {}).get("add", ())) - _CAPABILITIES
        found |= added
        names += [container["name"]] if added else []
    if names:
        words = f"{_name_containers(names)} must not include {_quote(sorted(found))} in "
        yield "non-default capabilities", f"{words}securityContext.capabilities.add"


def _check_host(template: Template) -> Iterator[tuple[str, str]]:
    names = [name for name in ("hostNetwork", "hostPID", "hostIPC") if template["spec"].get(name)]
    if names:
        yield "host namespaces", ", ".join(f"{name}=true" for name in names)


def _check_folders(template: Template) -> Iterator[tuple[str, str]]:
    names = [each["name"] for each in template["spec"].get("volumes", ()) if "hostPath" in each]
    if names:
        yield "hostPath volumes", f"{_count('volume', names)} {_quote(names)}"


def _check_ports(template: Template) -> Iterator[tuple[str, str]]:
    names, ports = [], set()
    for container in _list_containers(template):
        found = {each["hostPort"] for each in container.get("ports", ()) if each.get("hostPort")}
        ports |= found
        names += [container["name"]] if found else []
    if names:
        verb = "uses" if len(names) == 1 else "use"
        shown = ", ".join(sorted(map(str, ports)))
        yield "hostPort", f"{_name_containers(names)} {verb} {_count('hostPort', list(ports))} {shown}"


def _check_probes(template: Template) -> Iterator[tuple[str, str]]:
    names, hosts = set(), set()
    for container in _list_containers(template):
        handlers = [container.get(f"{kind}Probe", {}) for kind in ("liveness", "readiness", "startup")]
        handlers += [container.get("lifecycle", {}).get(kind, {}) for kind in ("postStart", "preStop")]
        found = {each.get(way, {}).get("host") for each in handlers for way in ("httpGet", "tcpSocket")} - {None, ""}
        hosts |= found
        names |= {container["name"]} if found else set()
    if names:
        verb = "uses" if len(names) == 1 else "use"
        what = _count("probe or lifecycle host", list(hosts))
        yield "probe or lifecycle host", f"{_name_containers(sorted(names))} {verb} {what} {_quote(sorted(hosts))}"


def _check_privileged(template: Template) -> Iterator[tuple[str, str]]:
    names = [each["name"] for each in _list_containers(template) if _get_context(each).get("privileged")]
    if names:
        yield "privileged", f"{_name_containers(names)} must not set securityContext.privileged=true"


def _check_mounts(template: Template) -> Iterator[tuple[str, str]]:
    kinds = {each["name"]: _get_context(each).get("procMount", "Default") for each in _list_containers(template)}
    names = [name for name, kind in kinds.items() if kind != "Default"]
    if names:
        shown = _quote(sorted({kinds[name] for name in names}))
        yield "procMount", f"{_name_containers(names)} must not set securityContext.procMount to {shown}"


def _check_linux(template: Template) -> Iterator[tuple[str, str]]:
    types: set[str] = set()
    words: set[str] = set()

    def is_bad(context: Mapping[str, Any]) -> bool:
        options = context.get("seLinuxOptions", {})
        given = options.get("type", "")
        types.update({given} - set(_LINUX_TYPES))
        named = {name for name in ("role", "user") if options.get(name)}
        words.update(named)
        return bool(named) or given not in _LINUX_TYPES

    if setters := _find_setters(template, is_bad):
        bad = [f"{_count('type', list(types))} {_quote(sorted(types))}"] if types else []
        bad += [f"{name} may not be set" for name in ("user", "role") if name in words]
        detail = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: {'; '.join(bad)}"
        yield "seLinuxOptions", detail


def _check_seccomp(template: Template) -> Iterator[tuple[str, str]]:
    def is_bad(context: Mapping[str, Any]) -> bool:
        return bool(context.get("seccompProfile", {}).get("type") == "Unconfined")

    if setters := _find_setters(template, is_bad):
        detail = f'{" and ".join(setters)} must not set securityContext.seccompProfile.type to "Unconfined"'
        yield "seccompProfile", detail


def _check_sysctls(template: Template) -> Iterator[tuple[str, str]]:
    found = [each["name"] for each in _get_context(template["spec"]).get("sysctls", ())]
    if forbidden := [name for name in found if name not in _SYSCTLS]:
        yield "forbidden sysctls", ", ".join(forbidden)


def _check_windows(template: Template) -> Iterator[tuple[str, str]]:
    def is_bad(context: Mapping[str, Any]) -> bool:
        return bool(context.get("windowsOptions", {}).get("hostProcess"))

    if setters := _find_setters(template, is_bad):
        yield "hostProcess", f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"


_CHECKS = (
    _check_app_armor,
    _check_capabilities,
    _check_host,
    _check_folders,
    _check_ports,
    _check_probes,
    _check_privileged,
    _check_mounts,
    _check_linux,
    _check_seccomp,
    _check_sysctls,
    _check_windows,
)
"""In the order in which the server evaluates them, that of their names there."""
