"""The package index of the nodes, asked by pip itself."""

import hashlib
import http.client
import subprocess
import sys
import zipfile
from urllib.parse import urlsplit

import pytest

from cdk_rehearsal.lab.packages import PackageServer, find_projects, prepare_index, write_index

METADATA = "Metadata-Version: 2.1\nName: Tiny.Thing\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _write_wheel(folder):
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_thing.py", "VALUE = 7\n")
        archive.writestr("tiny_thing-1.0.dist-info/METADATA", METADATA)
        archive.writestr("tiny_thing-1.0.dist-info/WHEEL", WHEEL)
        archive.writestr("tiny_thing-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    _write_wheel(folder)
    (folder / "notes.txt").write_text("no package")
    write_index(tmp_path / "index", [folder])
    with PackageServer("127.0.0.1", 0, tmp_path / "index") as served:
        yield f"{served.url}simple/"


def _get(url, method="GET"):
    answer = _ask(url, method)
    return answer.status, answer.read().decode()


def _ask(url, method):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0))
    connection.request(method, parts.path)
    return connection.getresponse()


def test_a_project_is_listed_under_its_normalized_name_with_the_digest_of_each_file(index, tmp_path):
    digest = hashlib.sha256((tmp_path / "packages" / "tiny_thing-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert 'href="/simple/tiny-thing/"' in _get(index)[1]
    status, page = _get(f"{index}tiny-thing/")
    assert status == 200
    assert f'href="/files/tiny_thing-1.0-py3-none-any.whl#sha256={digest}"' in page


def test_a_question_by_head_gets_the_length_and_no_body(index):
    for path in ("simple/tiny-thing/", "files/tiny_thing-1.0-py3-none-any.whl"):
        url = index.removesuffix("simple/") + path
        answer = _ask(url, "HEAD")
        assert (answer.status, answer.read()) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0
    assert _get(index + "other/", "HEAD")[0] == 404


def test_a_wheels_metadata_comes_without_the_wheel(index):
    digest = hashlib.sha256(METADATA.encode()).hexdigest()
    page = _get(f"{index}tiny-thing/")[1]
    assert f'data-core-metadata="sha256={digest}"' in page
    assert "data-dist-info-metadata" not in page
    files = index.removesuffix("simple/") + "files/"
    assert _get(f"{files}tiny_thing-1.0-py3-none-any.whl.metadata") == (200, METADATA)
    assert _get(f"{files}notes.txt.metadata")[0] == 404


def test_a_name_with_a_plus_is_found_as_it_is_and_quoted(tmp_path):
    """Of local versions, such as PyTorch's `+cpu`."""
    wheel = _write_wheel(tmp_path).rename(tmp_path / "tiny_thing-1.0+cpu-py3-none-any.whl")
    write_index(tmp_path / "index", [tmp_path])
    with PackageServer("127.0.0.1", 0, tmp_path / "index") as server:
        files = f"{server.url}files/"
        assert "/files/tiny_thing-1.0%2Bcpu-py3-none-any.whl#" in _get(f"{server.url}simple/tiny-thing/")[1]
        for name in (wheel.name, wheel.name.replace("+", "%2B")):
            assert _ask(files + name, "GET").read() == wheel.read_bytes()


def test_of_a_package_in_two_folders_the_first_is_served(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        _write_wheel(tmp_path / name)
    ((path,),) = find_projects([tmp_path / "one", tmp_path / "two"]).values()
    assert path.parent.name == "one"


def test_an_index_is_written_once_for_its_folders(tmp_path):
    (tmp_path / "packages").mkdir()
    _write_wheel(tmp_path / "packages")
    index = prepare_index(tmp_path / "cache", [tmp_path / "packages"], print)
    (tmp_path / "packages/other-1.0.tar.gz").touch()
    assert prepare_index(tmp_path / "cache", [tmp_path / "packages"], print) == index
    assert [path.name for path in (index / "simple").glob("*/")] == ["tiny-thing"]


@pytest.mark.parametrize("path", ["simple/other/", "files/notes.txt", "files/../notes.txt", "etc/passwd", ""])
def test_a_path_outside_the_folder_of_packages_is_not_served(index, path):
    assert _get(index.removesuffix("simple/") + path)[0] == 404


def test_pip_installs_from_it_and_refuses_a_package_with_another_hash(index, tmp_path):
    def install(digest):
        requirements = tmp_path / "requirements.txt"
        requirements.write_text(f"Tiny.Thing==1.0 --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "install", "--isolated", "--index-url", index, "--no-deps"]
        command += ["--require-hashes", "--target", str(tmp_path / "to"), "--requirement", str(requirements)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "do not match the hashes" in install("0" * 64).stderr.lower()
    right = hashlib.sha256((tmp_path / "packages" / "tiny_thing-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    answer = install(right)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "to" / "tiny_thing.py").read_text() == "VALUE = 7\n"


def test_wheels_and_sources_are_distinguished_from_other_files(tmp_path):
    names = ("a_b-1.0-1-cp311-cp311-manylinux2014_x86_64.whl", "A.B-0.9.tar.gz", "horovod-0.28.1.tar.gz", "lock.txt")
    for name in names:
        (tmp_path / name).touch()
    found = {project: [path.name for path in paths] for project, paths in find_projects([tmp_path]).items()}
    assert found == {"a-b": ["A.B-0.9.tar.gz", names[0]], "horovod": ["horovod-0.28.1.tar.gz"]}
