"""Code that a template has in itself, and the response modules that CloudFormation adds to it."""

import io
import secrets
import zipfile

import pytest

from cdk_rehearsal.embedded_aws.functions.inline_code import pack_inline_code


def list_files(text, runtime):
    """Return the files of a deployment package."""
    return zipfile.ZipFile(io.BytesIO(pack_inline_code(text, runtime))).namelist()


@pytest.mark.parametrize(
    ("runtime", "text", "files"),
    [
        ("python3.13", "import json", ["index.py"]),
        ("python3.13", "import cfnresponse", ["index.py", "cfnresponse.py"]),
        ("python3.13", "from cfnresponse import send", ["index.py"]),
        ("nodejs24.x", "exports.handler = async () => 1;", ["index.js"]),
        ("nodejs24.x", "const r = require('cfn-response');", ["index.js", "cfn-response.js"]),
        ("nodejs24.x", 'var r = require("cfn-response");', ["index.js", "cfn-response.js"]),
    ],
)
def test_inline_code_is_the_index_with_the_response_module_that_it_asks_for(runtime, text, files):
    """
    CloudFormation template reference, "AWS::Lambda::Function Code": a file named index, `.js` for Node.js.

    User guide, "cfn-response module": for Python, "if you use other variants of the import statement, CloudFormation
    doesn't include the response module".
    """
    assert list_files(text, runtime) == files


def test_inline_code_of_more_than_4_mb_is_refused():
    """Template reference: "This zip file cannot exceed 4MB"."""
    text = f"#{secrets.token_hex(5_000_000)}"
    with pytest.raises(ValueError, match="ZipFile must be at most 4 MB as a zip file"):
        pack_inline_code(text, "python3.13")
    assert pack_inline_code(f"#{'a' * 6_000_000}", "python3.13")
