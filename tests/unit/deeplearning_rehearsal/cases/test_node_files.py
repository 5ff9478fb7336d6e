"""The comparison of a node's files."""

import pytest

from deeplearning_rehearsal.cases.node_files import NodeFiles, digest_files


def _write(root, path, text, mode=0o644):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_node_that_was_left_alone_has_no_changed_file(tmp_path):
    _write(tmp_path, "etc/hosts", "127.0.0.1 localhost\n")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    _write(tmp_path, "var/log/agent.log", "again\n")
    _write(tmp_path, "opt/deeplearning/agent/__pycache__/boot.cpython-311.pyc", "")
    # What jobs need comes in its own time, and is told anew at each boot.
    _write(tmp_path, "opt/deeplearning/provision/status.json", '{"boot": "2"}')
    _write(tmp_path, "opt/deeplearning/environments/k1/bin/python", "")
    files.compare()
    assert files.changes == {"i-1": ()}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda root: _write(root, "etc/hosts", "127.0.0.1 other\n"), "etc/hosts"),
        (lambda root: (root / "etc/hosts").chmod(0o600), "etc/hosts"),
        (lambda root: (root / "etc/hosts").unlink(), "etc/hosts"),
        (lambda root: _write(root, "home/ubuntu/.ssh/new", ""), "home/ubuntu/.ssh/new"),
        (lambda root: _write(root, "opt/deeplearning/membership.json", "{}"), "opt/deeplearning/membership.json"),
        (lambda root: _write(root, "opt/deeplearning/provision.json", "{}"), "opt/deeplearning/provision.json"),
        (lambda root: ((root / "etc/link").unlink(), (root / "etc/link").symlink_to("/other")), "etc/link"),
    ],
)
def test_a_changed_file_of_a_node_is_found(tmp_path, change, path):
    _write(tmp_path, "etc/hosts", "127.0.0.1 localhost\n")
    (tmp_path / "etc/link").symlink_to("/somewhere")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    change(tmp_path)
    files.compare()
    assert files.changes == {"i-1": (path,)}


def test_the_first_state_of_a_nodes_files_is_remembered(tmp_path):
    file = _write(tmp_path, "etc/hosts", "first")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    file.write_text("second")
    files.remember("i-1")
    files.compare()
    assert files.changes == {"i-1": ("etc/hosts",)}
    assert list(digest_files(tmp_path)) == ["etc/hosts"]
