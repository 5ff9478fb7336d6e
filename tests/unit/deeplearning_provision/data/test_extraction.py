"""Extraction by concurrent threads."""

import io
import tarfile
import time

from deeplearning_provision.archives.extraction import extract
from deeplearning_provision.archives.tree_writer import TreeWriter


def test_the_last_member_of_a_name_counts_while_the_first_is_still_being_written(tmp_path, monkeypatch):
    archive, folder = tmp_path / "set.tar", tmp_path / "set"
    folder.mkdir()
    with tarfile.open(archive, "w") as file:
        for content in (b"the first", b"the last"):
            member = tarfile.TarInfo("twice")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    write = TreeWriter.write_file

    def write_the_first_slowly(self, parts, blocks, mode=0o644):
        if blocks == [b"the first"]:
            time.sleep(0.2)
        write(self, parts, blocks, mode)

    monkeypatch.setattr(TreeWriter, "write_file", write_the_first_slowly)
    assert extract(archive, "tar", folder, 4, lambda _: None) == 2
    assert (folder / "twice").read_bytes() == b"the last"
