"""
Software files are read as pip and conda read them, and refused when they name what nodes do not have.

Sources: pip documentation, "Requirements File Format" (structure, encoding, line continuations, options, environment
variables); PEP 508; conda documentation, "Creating an environment file manually".
"""

import codecs

import pytest

from deeplearning_cdk import JobEnvironment
from deeplearning_cdk.software.software_file import RequirementLine, read_requirements

ALONE = (
    r"^path must be one file that stands alone, got .*; write what it names into the file, or publish it to a package "
)


def write(folder, content, name="requirements.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def pins(path):
    return [(line.name, line.pin) for line in read_requirements(path).lines]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "-r base.txt",
            "-rbase.txt",
            "--requirement=base.txt",
            "--requirem base.txt",
            "-r\tbase.txt",
            "-r https://a.example/b",
        ),
        *(
            "-c limits.txt",
            "-climits.txt",
            "--constraint limits.txt",
            "-e .",
            "-e git+https://a.example/b",
            "--editable=.",
        ),
        *("./mine.whl", "../lib", ".", ".[dev]", "~/src/foo", "mypkg/", "/srv/a.whl", "dist/foo-1.0-py3-none-any.whl"),
        *("foo-1.0-py3-none-any.whl", "foo-1.0.tar.gz", "FOO.ZIP", "foo.tbz", r"C:\wheels\foo.whl", r".\foo"),
        *("file:///opt/x.whl", "file:x.whl", "FILE:///opt/x.whl", "a @ file:///opt/x.whl", "a@./x", "a[b] @ x.whl"),
        *("git+file:///srv/repo", "a @ git+file:///srv/repo", "s3://bucket/a.whl", "http://localhost:8080/a.whl"),
        *(
            "-f wheels",
            "--find-links ./wheels",
            "--find-links=file:///wheels",
            "-i file:///index",
            "--index-url ./index",
        ),
        *("--extra-index-url http://127.0.0.1:3141/root", "-i http://[::1]/simple", "--extra-index http://LOCALHOST/s"),
        *(
            "numpy -r base.txt",
            "numpy --constraint limits.txt",
            "./a.whl ; python_version > '3'",
            "./a.whl --hash=sha256:0",
        ),
    ],
)
def test_a_line_that_names_what_only_this_machine_has_is_refused(tmp_path, line):
    path = write(tmp_path, f"numpy\n  {line}\n")
    with pytest.raises(ValueError, match=ALONE) as caught:
        JobEnvironment.from_requirements(path)
    assert f" in line 2 of {path!r}; " in str(caught.value)
    # The same line in a conda file's list for pip, which conda gives to pip.
    conda = write(
        tmp_path, f"dependencies: [pip, {{pip: [numpy, {line!r}]}}]\n".replace("\\\\", "\\"), "environment.yml"
    )
    with pytest.raises(ValueError, match=ALONE):
        JobEnvironment.from_conda(conda)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("torch = 2.13", "write torch==2.13$"),
        ("torch=2.13.0", r"write torch==2\.13\.0$"),
        ("foo[a]=1.0", r"write foo\[a\]==1\.0$"),
        ("torch 2.13", "correct it: "),
        ("torch=>2.13", "correct it: "),
        ("name: train", "correct it: "),
        ("[project]", "correct it: "),
        ("torch==", "correct it: "),
        ("import torch", "correct it: "),
        ("--no-such-option", "correct them: no such option: --no-such-option"),
        ("-i", "correct them: -i option requires 1 argument"),
        ("numpy --hash='sha256:0", "correct them: No closing quotation"),
        (
            "--extra-index-url https://${TOKEN}@a.example/simple",
            "; write the value$",
        ),
        ("numpy --index-url https://a.example/simple", ", where pip ignores it; move it there$"),
    ],
)
def test_a_line_that_pip_would_refuse_on_the_master_is_refused(tmp_path, line, reason):
    with pytest.raises(ValueError, match=f"^path must be a file with.* in line 1 of .*{reason}") as caught:
        JobEnvironment.from_requirements(write(tmp_path, f"{line}\n"))
    assert "\n" not in str(caught.value)


def test_what_pip_accepts_is_read_with_its_pins(tmp_path):
    lines = """\
# a comment
--extra-index-url https://a.example/simple --pre
--only-binary :all:
Torch_Geometric == 2.7 \\
    --hash=sha256:0 \\
    # the end of the line
torch[opt] ===2.13.0 # pinned
numpy>=1,<3 ; python_version > "3"
scipy==1.0; python_version > "3"
a @ https://a.example/a.whl
https://a.example/b-1.0-py3-none-any.whl#sha256=0
git+ssh://git@a.example/c.git@v1#egg=c
zip.archive
"""
    path = write(tmp_path, lines)
    found = read_requirements(path)
    assert found.has_own_index
    assert pins(path) == [
        ("torch-geometric", "2.7"),
        ("torch", "2.13.0"),
        ("numpy", ""),
        ("scipy", ""),
        ("a", ""),
        ("", ""),
        ("", ""),
        ("zip-archive", ""),
    ]
    assert found.lines[1] == RequirementLine(f"'torch[opt] ===2.13.0' in line 7 of {path!r}", "torch", "2.13.0")
    assert not read_requirements(write(tmp_path, "--pre\r\ntorch\r\n")).has_own_index


MARKS = {
    "utf-8-sig": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
}


@pytest.mark.parametrize("encoding", MARKS)
def test_a_byte_order_mark_names_the_encoding(tmp_path, encoding):
    path = write(tmp_path, MARKS[encoding] + "# dépendances\r\ntorch==2.7.1\r\n".encode(encoding))
    assert pins(path) == [("torch", "2.7.1")]


def test_a_declared_encoding_is_used_and_others_are_utf_8(tmp_path):
    for text, encoding in (
        ("# -*- coding: latin-1 -*-\n# é\ntorch==2.7.1\n", "latin-1"),
        ("# pins\n# vim: set fileencoding=cp1252 :\n# é\ntorch==2.7.1\n", "cp1252"),
        ("# é\ntorch==2.7.1\n", "utf-8"),
    ):
        assert pins(write(tmp_path, text.encode(encoding))) == [("torch", "2.7.1")]
    for content in (
        b"# \xe9\ntorch\n",
        b"# coding: nonsense\ntorch\n",
        b"a\nb\n# coding: latin-1\n# \xe9\n",
        b"\xff\xfea",
    ):
        with pytest.raises(ValueError, match=r"^path must be a file of text in UTF-8, or .*; save it as UTF-8$"):
            JobEnvironment.from_requirements(write(tmp_path, content))


def test_a_file_without_a_requirement_is_refused(tmp_path):
    for text in ("", "\n \n", "# torch\n", "--pre\n", "\\\n"):
        with pytest.raises(
            ValueError, match=r"^path must be a file with at least one requirement, got none in .*; leave the"
        ):
            JobEnvironment.from_requirements(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("channels: [./local]", "stands alone"),
        ("channels: [local]", "stands alone"),
        ("channels: ['file:///srv/channel']", "stands alone"),
        ("channels: [/srv/channel, conda-forge]", "stands alone"),
        ("dependencies: [/opt/a-1.0-0.conda]", "stands alone"),
        ("dependencies: [a-1.0-0.tar.bz2]", "stands alone"),
        ("dependencies: [{pip: [torch = 2.13]}]", r"write torch==2\.13$"),
        ("a: [", "of YAML, .*; correct it: "),
        ("torch==2.13.0\n", "map with lists of channels and dependencies"),
        ("dependencies: torch", "map with lists of channels and dependencies"),
    ],
)
def test_a_conda_file_that_cannot_be_created_on_the_master_is_refused(tmp_path, text, reason):
    with pytest.raises(ValueError, match=f"^path must be .*{reason}"):
        JobEnvironment.from_conda(write(tmp_path, text, "environment.yml"))


def test_what_conda_accepts_is_taken(tmp_path):
    text = """\
name: train
channels: [nvidia/label/cuda-12.1, conda-forge, 'https://conda.a.example/team']
dependencies:
  - python=3.11
  - conda-forge::numpy>=1
  - https://conda.a.example/team/linux-64/a-1.0-0.conda
  - pip
  - pip:
      - --extra-index-url https://a.example/simple
      - torch==2.13.0
"""
    for content in (text.encode(), text.encode("utf-16"), b"name: train\nchannels:\n"):
        assert JobEnvironment.from_conda(write(tmp_path, content, "environment.yml")).kind == "conda"
