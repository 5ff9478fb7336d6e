"""The download of aws-cfn-bootstrap, as pip of a machine meets it."""

import http.client
import io
import socket
import ssl
import tarfile

import pytest

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.lab import downloads
from cdk_rehearsal.lab.downloads import HOST, Downloads, need_downloads

PATH = "/cloudformation-examples/aws-cfn-bootstrap-py3-latest.tar.gz"


def make_stack(text):
    return AssemblyStack("s", "123456789012", "us-east-1", {"Resources": {"T": {"UserData": text}}}, ())


def test_the_download_is_there_where_a_template_names_it():
    assert need_downloads([make_stack("x"), make_stack(f"pip3 install https://{HOST}{PATH}")])
    assert not need_downloads([make_stack("pip3 install boto3")])


def fetch(port, trust, path):
    context = ssl.create_default_context(cadata=trust)
    connection = http.client.HTTPSConnection(HOST, port, context=context)
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sock = context.wrap_socket(plain, server_hostname=HOST)
    connection.request("GET", path)
    return connection.getresponse()


def test_the_host_has_a_certificate_that_its_authority_alone_vouches_for(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(downloads, "_PORT", port)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    served, stranger = Downloads(tmp_path / "one"), Downloads(tmp_path / "other")
    with served.open("127.0.0.1"):
        with tarfile.open(fileobj=io.BytesIO(fetch(port, served.authority, PATH).read())) as archive:
            assert archive.getnames() == ["aws-cfn-bootstrap-2.0/setup.py", "aws-cfn-bootstrap-2.0/bin/cfn-signal"]
        assert fetch(port, served.authority, "/absent").status == http.client.NOT_FOUND
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(port, stranger.authority, PATH)
