"""
Stands in for cloud-init: what an image does with its instance's metadata at boot.

Stage `init` (before sshd): on an instance's first boot the login user, its authorized key and the host keys.
Stage `final` (after services): user data, on an instance's first boot only. Only scripts are known as user data.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

METADATA = "http://169.254.169.254/latest"
SEEN_INSTANCE = Path("/var/lib/cloud/data/instance-id")
SEEN_KEYS = Path("/var/lib/cloud/data/keys-of")
RESULT = Path("/run/cloud-init/result.json")
USER_DATA_LOG = Path("/var/log/cloud-init-output.log")
SETTINGS = Path("/usr/lib/lab/login-user")
_HOST_KEY_TYPES = ("ed25519", "ecdsa")


def read_metadata() -> Callable[[str], bytes | None]:
    """Get an IMDSv2 token; return a reader of paths, which returns None where there is nothing."""
    request = urllib.request.Request(f"{METADATA}/api/token", method="PUT")  # noqa: S310 - a constant http address
    request.add_header("X-aws-ec2-metadata-token-ttl-seconds", "600")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        token = answer.read().decode()

    def read(path: str) -> bytes | None:
        asked = urllib.request.Request(f"{METADATA}/{path}")  # noqa: S310 - a constant http address
        asked.add_header("X-aws-ec2-metadata-token", token)
        try:
            with opener.open(asked, timeout=30) as found:
                content: bytes = found.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code == 404:  # noqa: PLR2004
                return None
            raise

    return read


def is_script(user_data: bytes) -> bool:
    """Tell whether user data is a script; cloud-init knows other forms, this stand-in does not."""
    return user_data.startswith(b"#!")


def init_stage(read: Callable[[str], bytes | None], instance_id: str) -> None:
    """On an instance's first boot make user and keys."""
    if SEEN_KEYS.exists() and SEEN_KEYS.read_text() == instance_id:
        return
    user = SETTINGS.read_text().strip()
    subprocess.run(["useradd", "--create-home", "--uid", "1000", "--shell", "/bin/bash", user], check=True)
    sudoers = Path("/etc/sudoers.d/90-cloud-init-users")
    sudoers.write_text(f"{user} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)
    key = read("meta-data/public-keys/0/openssh-key")
    if key is not None:
        folder = Path("/home", user, ".ssh")
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_bytes(key.rstrip() + b"\n")
        (folder / "authorized_keys").chmod(0o600)
        subprocess.run(["chown", "--recursive", f"{user}:{user}", str(folder)], check=True)
    for kind in _HOST_KEY_TYPES:
        path = Path(f"/etc/ssh/ssh_host_{kind}_key")
        path.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)
    _remember(SEEN_KEYS, instance_id)


def final_stage(read: Callable[[str], bytes | None], instance_id: str) -> int:
    """On an instance's first boot run user data as root; return its exit status."""
    if SEEN_INSTANCE.exists() and SEEN_INSTANCE.read_text() == instance_id:
        return 0
    # Remembered first: cloud-init does not run a script again that a reboot cut short.
    _remember(SEEN_INSTANCE, instance_id)
    user_data = read("user-data")
    if not user_data:
        return 0
    with USER_DATA_LOG.open("ab", buffering=0) as log:
        if not is_script(user_data):
            log.write(b"user data must be a script that begins with #!; other forms are not implemented here\n")
            return 1
        script = Path("/var/lib/cloud/instance/scripts/part-001")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(user_data)
        script.chmod(0o700)
        status = subprocess.run([str(script)], stdout=log, stderr=log, check=False).returncode
        if status:
            log.write(f"Failed to run module scripts-user: {script} ended with status {status}\n".encode())
    return status


def main(stage: str) -> int:
    """Run one stage."""
    read = read_metadata()
    instance_id = (read("meta-data/instance-id") or b"").decode()
    if stage == "init":
        init_stage(read, instance_id)
        return 0
    status = final_stage(read, instance_id)
    # cloud-init's own sign that this boot is over.
    errors = [f"user data ended with status {status}"] if status else []
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"v1": {"datasource": "DataSourceEc2Local", "errors": errors}}) + "\n")
    return status


def _remember(path: Path, instance_id: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(instance_id)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
