"""A user's machine for `stage_data.sh`: small downloads of the real names, a clone of TensorPack, and an `aws`."""

import hashlib
import io
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples/mask_rcnn/stage_data.sh"
ARCHIVES = {
    "zips/train2017.zip": ("train2017/000000000009.jpg",),
    "zips/val2017.zip": ("val2017/000000000139.jpg",),
    "annotations/annotations_trainval2017.zip": (
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "annotations/captions_val2017.json",
    ),
}
"""Files of COCO's archives, as they are named there."""
MODELS = {
    "ImageNet-R50-AlignPadding.npz": ("conv0/W.npy",),
    "COCO-R50FPN-MaskRCNN-Standard.npz": ("conv0/W.npy",),
}
SLEEP = "#!/bin/sh\n"
AWS = r"""#!/bin/bash
# The calls of the AWS CLI that the script makes, to $AWS_ENDPOINT_URL. Exit statuses: AWS CLI user guide, "Command line
# return codes in the AWS CLI": 254 for an error of the service.
set -e
at=$AWS_ENDPOINT_URL
send() { curl -sSf -H "Authorization: AWS4-HMAC-SHA256 Credential=testing/20260101/eu-west-1/s3/aws4_request" "$@"; }
case "$1 $2" in
"s3api head-bucket") send -I "$at/$4" || exit 254 ;;
"s3api head-object")
    head=$(send -I "$at/$4/$6") || exit 254
    sed -n 's/^x-amz-meta-sha256: \([0-9a-f]*\).*/\1/ip' <<<"$head" ;;
"s3 cp") send -T "$3" ${6:+-H "x-amz-meta-${6/=/: }"} "$at/${4#s3://}" || exit 1 ;;
*) exit 252 ;;
esac
"""


def zip_up(names, content):
    """Return an archive of files with one content."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return body.getvalue()


class StagingLab:
    """
    The script with the addresses of a server of this machine, the MD5s of its files, and no need of room.

    Everything else is real: curl, git, tar, unzip, and the digests.
    """

    def __init__(self, folder, web):
        self.folder = folder
        self.web = web
        self.work = folder / "work/mask-rcnn"
        for name, files in ARCHIVES.items():
            web.files[f"/{name}"] = zip_up(files, name * 4000)
        for name, files in MODELS.items():
            web.files[f"/{name}"] = zip_up(files, name * 4000)
        (folder / "bin").mkdir()
        self.add_program("aws", AWS)
        self.add_program("sleep", SLEEP)
        self._make_tensorpack()
        self.script = folder / "stage_data.sh"
        self.script.write_text(SCRIPT.read_text())
        self.change(r"(?<=^COCO=).*", web.url)
        self.change(r"(?<=^MODELS=).*", web.url)
        self.change(r"(?<=^TENSORPACK=).*", f"file://{folder / 'tensorpack'}")
        self.change(r"(?<=^ROOM_GB=)\d+", "0")
        for name in ARCHIVES:
            digest = hashlib.md5(web.files[f"/{name}"], usedforsecurity=False).hexdigest()
            self.change(rf"(?<=/{name}\" )[0-9a-f]{{32}}$", digest)

    def change(self, pattern, value):
        """Change the one place of the script that a pattern finds."""
        text, count = re.subn(pattern, value, self.script.read_text(), flags=re.MULTILINE)
        assert count == 1, pattern
        self.script.write_text(text)

    def add_program(self, name, text):
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def _make_tensorpack(self):
        program = self.folder / "tensorpack/examples/FasterRCNN/train.py"
        program.parent.mkdir(parents=True)
        program.write_text("")
        identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        for words in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "--message", "all")):
            subprocess.run(["git", *words], cwd=self.folder / "tensorpack", check=True)

    @property
    def environment(self):
        return os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def command(self, *words):
        return ["bash", str(self.script), *(words or ("s3://bucket/sets", str(self.folder / "work")))]

    def stage(self, *words):
        """Run the script; without words into s3://bucket/sets."""
        return subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )


def read_sources(output):
    """Return the entries of storage.data that the script printed."""
    return json.loads(output.rpartition("-c storage.data='")[2].rpartition("'")[0])
