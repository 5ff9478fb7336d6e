"""Metadata hook that makes the wheel's description of the README: an index shows it, and no other file beside it."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?://)[^)]*\)")


class ReadmeHook(MetadataHookInterface):
    """Hook of `project.readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description to the README without its pictures, and with the text alone of links to other files."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(r"\1", _PICTURE.sub("", text))}
