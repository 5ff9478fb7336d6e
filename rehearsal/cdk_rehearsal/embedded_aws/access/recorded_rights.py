"""What a rehearsal writes about rights: distinct calls, the policies that decided them, and names for their ARNs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.access.gatekeeper import Gatekeeper
from cdk_rehearsal.embedded_aws.cloudformation.stack_record import StackResource

RIGHTS_FILE = "calls.json"


def write_rights(gatekeeper: Gatekeeper, case: str, resources: Iterable[StackResource], folder: Path) -> None:
    """
    Write `calls.json`, beside the report.

    The logical ids of the stack's resources make the ARNs of several rehearsals comparable; `case` may be empty.
    """
    document = {"case": case, **_describe(gatekeeper)}
    document["names"] = {entry.physical_id: entry.logical_id for entry in resources if entry.physical_id}
    (folder / RIGHTS_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _describe(gatekeeper: Gatekeeper) -> dict[str, Any]:
    record, state = gatekeeper.record, gatekeeper.state
    counts = sorted(record.counts().items(), key=lambda entry: (entry[0].kind, entry[0].action, entry[0].resource))
    return {
        "account": state.account,
        "region": state.region,
        "calls": [call.to_document() | {"count": count} for call, count in counts],
        "left_out": record.left_out,
        "denials": dict(record.denials()),
        "roles": {role: _parse(state.list_identity_policies(role)) for role in state.list_roles()},
        "resources": _parse(state.list_resource_policies()),
    }


def _parse(policies: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in policies.items()}
