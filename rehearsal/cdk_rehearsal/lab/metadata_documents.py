"""What the instance metadata service says of a machine, as paths and texts."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from cdk_rehearsal.identity_document import sign_document
from cdk_rehearsal.lab.network import mac_address
from cdk_rehearsal.machine import Machine

CREDENTIALS_LIFETIME = timedelta(hours=6)
_MINIMUM_KEY_PARTS = 2


def build_documents(machine: Machine, now: datetime) -> Mapping[str, bytes]:
    """
    Return every document of a machine.

    Args:
        machine: The instance.
        now: Current time, UTC; credentials are shown as just refreshed.

    Returns:
        Path below `/latest/` -> content.
    """
    texts = {f"meta-data/{path}": text for path, text in _metadata(machine).items()}
    texts |= {f"meta-data/tags/instance/{name}": value for name, value in machine.tags.items()}
    if machine.role_name:
        texts[f"meta-data/iam/security-credentials/{machine.role_name}"] = _credentials(machine, now)
    if machine.public_key:
        # The name of the pair is the key's comment, which EC2 sets; a listing shows `<index>=<name>`.
        texts["meta-data/public-keys/0/openssh-key"] = machine.public_key.strip() + "\n"
    texts["dynamic/instance-identity/document"] = _identity(machine)
    texts["dynamic/instance-identity/signature"] = sign_document(_identity(machine))
    documents = {path: text.encode() for path, text in texts.items()}
    return documents | ({"user-data": machine.user_data} if machine.user_data else {})


def find_document(documents: Mapping[str, bytes], path: str) -> bytes | None:
    """
    Find a document, or the listing of a folder.

    Args:
        documents: Of `build_documents`.
        path: Path below `/latest/`.

    Returns:
        None where there is nothing.
    """
    if path in documents:
        return documents[path]
    prefix = path.rstrip("/") + "/" if path.strip("/") else ""
    below = [name.removeprefix(prefix) for name in documents if name.startswith(prefix)]
    if not below:
        return None
    if prefix == "meta-data/public-keys/":
        key = documents["meta-data/public-keys/0/openssh-key"].decode().split(maxsplit=2)
        return b"0=" + (key[2].strip() if len(key) > _MINIMUM_KEY_PARTS else "key").encode()
    entries = sorted({name.split("/", 1)[0] + ("/" if "/" in name else "") for name in below})
    return "\n".join(entries).encode()


def private_dns_name(machine: Machine) -> str:
    """Return the name that the VPC's DNS gives to the instance."""
    zone = "ec2.internal" if machine.region == "us-east-1" else f"{machine.region}.compute.internal"
    return f"{host_name(machine)}.{zone}"


def host_name(machine: Machine) -> str:
    """Return the instance's host name, made from its address."""
    return f"ip-{machine.address.replace('.', '-')}"


def _metadata(machine: Machine) -> dict[str, str]:
    mac = mac_address(machine.address)
    return {
        "ami-id": machine.image_id,
        "hostname": private_dns_name(machine),
        "instance-id": machine.instance_id,
        "instance-type": machine.instance_type,
        "local-hostname": private_dns_name(machine),
        "local-ipv4": machine.address,
        "mac": mac,
        "network/interfaces/macs/" + mac + "/local-ipv4s": machine.address,
        "network/interfaces/macs/" + mac + "/vpc-ipv4-cidr-blocks": "\n".join(machine.vpc_networks),
        "placement/availability-zone": machine.zone,
        "placement/region": machine.region,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }


def _credentials(machine: Machine, now: datetime) -> str:
    document = {
        "Code": "Success",
        "LastUpdated": render_time(now),
        "Type": "AWS-HMAC",
        "AccessKeyId": machine.access_key_id,
        "SecretAccessKey": machine.secret_access_key,
        "Token": machine.session_token,
        "Expiration": render_time(now + CREDENTIALS_LIFETIME),
    }
    return json.dumps(document, indent=2)


def _identity(machine: Machine) -> str:
    document = {
        "architecture": "x86_64",
        "availabilityZone": machine.zone,
        "imageId": machine.image_id,
        "instanceId": machine.instance_id,
        "instanceType": machine.instance_type,
        "privateIp": machine.address,
        "region": machine.region,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=2)


def render_time(moment: datetime) -> str:
    """Render a time as the service does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
