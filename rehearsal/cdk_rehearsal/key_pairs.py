"""What the rehearsed account is assumed to hold already, because the user's own does and a template only names it."""

from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def assume_key_pairs(template: Mapping[str, Any]) -> dict[str, str]:
    """
    Make up the EC2 key pairs that a template's launch templates name.

    Args:
        template: The template.

    Returns:
        Name -> OpenSSH public key, whose private key nobody has.
    """
    names = [
        resource["Properties"]["LaunchTemplateData"].get("KeyName")
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::EC2::LaunchTemplate"
    ]
    return {name: _make_public_key() for name in names if isinstance(name, str)}


def _make_public_key() -> str:
    public_key = Ed25519PrivateKey.generate().public_key()
    return public_key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
