"""The page about what a rehearsal emulates, creates without effect and refuses, from the tables by which it decides."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cdk_rehearsal.lab import StandIn
from cdk_rehearsal.lab.container import CONTAINER
from cdk_rehearsal.lab.images.container_image import BUILT_IMAGE
from cdk_rehearsal.lab.images.image_parts import PART_STAND_INS
from cdk_rehearsal.lab.images.stand_in_layer import (
    DEBIAN_ARCHIVE,
    DOWNLOAD,
    LUSTRE_CLIENT,
    PACKAGE_INDEX,
    STAND_INS,
)
from cdk_rehearsal.referees.resource_support import (
    CREATION_POLICY,
    CUSTOM_RESOURCE,
    RESOURCE_KEYS,
    SIGNALLED,
    load_support,
)
from cdk_rehearsal.report.stand_ins import AWS_STAND_INS

_HEAD = """\
# What a rehearsal implements

What [cdk-rehearse](../../rehearsal/cdk_rehearsal/README.md) does with each resource type and each part of AWS. The
rehearsal decides by the same tables. `make docs` writes this page.

**Real** are templates, assets, user data and the handlers of functions, byte for byte, and what instances run of Debian
12: systemd, cloud-init, sshd, sudo, apt. **Emulated** properties act: a wrong value has the consequence that it has on
AWS. What is taken **without effect** changes nothing in the lab; the reason says why no result depends on it.
Everything else is **refused**, by name and before anything is deployed: types, properties, values and attributes that
are not listed here."""

_TYPES = """\
## Resource types

The row of a property includes everything below it, unless properties below it are listed. A value after `=` is the only
one that is taken; other values of the property are refused. "All" means that no name is refused."""

_PARTS = """\
## Parts that are not real

The report of each rehearsal lists those that it used."""


def render_rehearsed_resources() -> str:
    """Return the page, the same on every machine that has the locked dependencies."""
    return f"{_HEAD}\n\n{_TYPES}\n\n{_tabulate_types()}\n\n{_PARTS}\n\n{_tabulate_parts()}\n"


def _tabulate_types() -> str:
    kept = ", ".join(f"`CreationPolicy.{path}`" for path in CREATION_POLICY.acts)
    names = " and ".join(f"`{name}`" for name in SIGNALLED)
    acts = _quote(key for key, reason in RESOURCE_KEYS.items() if not reason and key not in _ALWAYS)
    rows = [f"| every type | {acts}; {kept} of {names} | {_explain(RESOURCE_KEYS, {})} | |"]
    for name, support in sorted(load_support().items()):
        label = f"`{name}`, `Custom::*`" if name == CUSTOM_RESOURCE else f"`{name}`"
        acts = _list_paths(support.acts, support.values) or "nothing"
        taken = _explain(support.without_effect, support.values)
        rows.append(f"| {label} | {acts} | {taken} | {_list_paths(sorted(support.attributes), {})} |")
    return "\n".join(["| type | emulated | without effect, and why | `Fn::GetAtt` |", "|---|---|---|---|", *rows])


_ALWAYS = ("Type", "Properties", "CreationPolicy")
"""Keys of a resource that have a column or an entry of their own."""


def _list_paths(paths: Iterable[str], values: Mapping[str, Sequence[Any]]) -> str:
    """Return paths in a cell, each with the values that alone are taken."""
    return ", ".join("all" if path == "*" else f"`{path}`{_limit(values.get(path, ()))}" for path in paths)


def _limit(values: Sequence[Any]) -> str:
    words = (str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    return " = " + " or ".join(f"`{word}`" for word in words) if values else ""


def _explain(reasons: Mapping[str, str], values: Mapping[str, Sequence[Any]]) -> str:
    """Return paths in a cell with their reasons, those with the same reason together."""
    paths: dict[str, list[str]] = {}
    for path, reason in reasons.items():
        if reason:
            paths.setdefault(reason, []).append(path)
    return "; ".join(f"{_list_paths(each, values)}: {reason}" for reason, each in paths.items())


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _tabulate_parts() -> str:
    rows = [f"| {each.name} | {each.replaces} | {_say(each)} |" for each in _find_parts()]
    return "\n".join(["| stand-in | replaces | what it does |", "|---|---|---|", *rows])


def _find_parts() -> Iterator[StandIn]:
    yield from AWS_STAND_INS
    yield from STAND_INS
    yield from PART_STAND_INS.values()
    yield from (DEBIAN_ARCHIVE, PACKAGE_INDEX, DOWNLOAD, LUSTRE_CLIENT, CONTAINER, BUILT_IMAGE)


def _say(part: StandIn) -> str:
    """Return what a part does, without the version of the Python that writes the page."""
    return part.behaviour.replace(f" {platform.python_version()}", "")
