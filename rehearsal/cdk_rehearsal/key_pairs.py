"""Key pairs that the rehearsed account holds already, because the user's own does and a template only names them."""

from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cdk_rehearsal.assembly import AssemblyStack


def assume_key_pairs(stacks: Iterable[AssemblyStack]) -> dict[str, str]:
    """Return name -> OpenSSH public key of the key pairs that launch templates name; nobody has the private keys."""
    names = [
        resource["Properties"]["LaunchTemplateData"].get("KeyName")
        for stack in stacks
        for template in stack.templates
        for resource in template.get("Resources", {}).values()
        if resource["Type"] == "AWS::EC2::LaunchTemplate"
    ]
    return {name: _make_public_key() for name in names if isinstance(name, str)}


def _make_public_key() -> str:
    public_key = Ed25519PrivateKey.generate().public_key()
    return public_key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
