"""Key pairs that the rehearsed account holds already, because the user's own does and a template only names them."""

from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cdk_rehearsal.assembly import AssemblyStack


def assume_key_pairs(stacks: Iterable[AssemblyStack]) -> dict[str, str]:
    """Return name -> OpenSSH public key of the key pairs that launches name; nobody has the private keys."""
    resources = [
        resource for stack in stacks for each in stack.templates for resource in each.get("Resources", {}).values()
    ]
    names = [_find_key_name(resource["Type"], resource.get("Properties", {})) for resource in resources]
    return {name: _make_public_key() for name in names if isinstance(name, str)}


def _find_key_name(kind: str, properties: Mapping[str, Any]) -> Any:
    if kind == "AWS::EC2::LaunchTemplate":
        return properties["LaunchTemplateData"].get("KeyName")
    is_launch = kind in ("AWS::EC2::Instance", "AWS::AutoScaling::LaunchConfiguration")
    return properties.get("KeyName") if is_launch else None


def _make_public_key() -> str:
    public_key = Ed25519PrivateKey.generate().public_key()
    return public_key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
