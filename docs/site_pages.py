"""Hooks of the site: pages that are files elsewhere in the repository, and links that leave the site."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "guides/examples.md",
    "rehearsal/cdk_rehearsal/README.md": "guides/rehearse-another-app.md",
}
"""File of the repository -> its page."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)]*)?\)")
_log = get_plugin_logger("site_pages")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files elsewhere."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to pages of the site, and leave the text alone of those to other files of the repository."""
    here = page.file.src_uri
    folder = next((ROOT / source for source, name in ELSEWHERE.items() if name == here), ROOT / "docs" / here).parent

    def lead(link: re.Match[str]) -> str:
        text, target, anchor = link[1], (folder / link[2]).resolve(), link[3] or ""
        if not target.exists():
            _log.warning("%s links to %s, which does not exist", here, link[2])
        name = target.relative_to(ROOT).as_posix()
        found = ELSEWHERE.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else "")
        if not found.endswith((".md", ".png")):
            return text
        return f"[{text}]({os.path.relpath(found, Path(here).parent)}{anchor})"

    return _LINK.sub(lead, markdown)
