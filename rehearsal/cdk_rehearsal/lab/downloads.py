"""
The download that public templates make of AWS's examples: aws-cfn-bootstrap, for images without it.

Amazon Linux has the package; on Ubuntu user data installs it with pip (CloudFormation user guide, "CloudFormation
helper scripts reference"). In the lab the host's name leads here, and images trust the certificate.
"""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.lab.images.stand_in_layer import make_launchers
from cdk_rehearsal.lab.packages import PackageServer

HOST = "s3.amazonaws.com"
_FOLDER = "cloudformation-examples"
_PACKAGE = "aws-cfn-bootstrap"
_SETUP = f"""from setuptools import setup

setup(name="{_PACKAGE}", version="2.0", scripts=["bin/cfn-signal"])
"""
_PORT = 443


def need_downloads(stacks: Iterable[AssemblyStack]) -> bool:
    """Return whether a template names the download."""
    return any(f"{_FOLDER}/{_PACKAGE}" in json.dumps(template) for stack in stacks for template in stack.templates)


class Downloads:
    """The download in a new folder, and the certificate of its host."""

    def __init__(self, folder: Path) -> None:
        from cdk_rehearsal.kubernetes.certificates import make_certificates  # noqa: PLC0415 - of the extra `rehearsal`

        self._files = folder / "files"
        (self._files / _FOLDER).mkdir(parents=True)
        _write_package(self._files / _FOLDER / f"{_PACKAGE}-py3-latest.tar.gz")
        self._certificates = make_certificates(folder, [HOST])

    @property
    def authority(self) -> str:
        """The certificate that machines must trust, PEM."""
        return self._certificates.authority.read_text()

    def open(self, address: str) -> PackageServer:
        """Return its HTTPS server at an address."""
        return PackageServer(address, _PORT, self._files, (self._certificates.certificate, self._certificates.key))


def _write_package(path: Path) -> None:
    (program,) = make_launchers({"bin/cfn-signal": ("cfn_signal", "sys.argv[1:]")}).values()
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"setup.py": _SETUP, "bin/cfn-signal": program}.items():
            entry = tarfile.TarInfo(f"{_PACKAGE}-2.0/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
