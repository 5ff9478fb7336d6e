"""
Hooks of the site: pages that are files elsewhere in the repository, links that leave the site, diagrams, the labels of
tables on a phone, and the version and repository, which `version.py` and `pyproject.toml` state.
"""

import os
import re
import runpy
from pathlib import Path
from typing import Any

import tomllib
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
API = "reference/api.md"
MERMAID = "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
"""Program that draws diagrams; where a page has it, the theme loads none from elsewhere."""
VERSION = "contract/deeplearning_contract/version.py"
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)]*)?\)")
_log = get_plugin_logger("site_pages")


def on_config(config: Any) -> Any:
    """Show the version on every page, and link to the source if the package's metadata names its repository."""
    config.copyright = f"{config.site_name} {runpy.run_path(str(ROOT / VERSION))['VERSION']}, Apache-2.0"
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    found = {name.lower(): url.rstrip("/") for name, url in urls.items()}
    config.repo_url = next((found[name] for name in ("repository", "source") if name in found), None)
    if config.repo_url:
        config.repo_name, config.edit_uri = config.repo_url.rpartition("/")[2], "edit/main/docs/"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files elsewhere, and the program that draws diagrams."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, Path(MERMAID).name, abs_src_path=str(ROOT / MERMAID)))
    return files


def on_pre_page(page: Any, config: Any, **_: Any) -> Any:
    """Give the pages that are files elsewhere an edit link too."""
    source = next((source for source, name in ELSEWHERE.items() if name == page.file.src_uri), None)
    if config.repo_url and source:
        page.edit_url = f"{config.repo_url}/edit/main/{source}"
    return page


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Add the program that draws diagrams to the pages that have some, and request nothing from the repository."""
    # With this attribute, the theme's program asks GitHub's API for stars and releases.
    output = output.replace('data-md-component="source"', "")
    address = os.path.relpath(Path(MERMAID).name, Path(page.file.dest_uri).parent)
    has_diagram = '<pre class="mermaid">' in output
    return output.replace("</head>", f'<script src="{address}"></script></head>', 1) if has_diagram else output


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warn, which fails the build, if the reference of the API shows rules in place of a type."""
    if page.file.src_uri == API and "Annotated[" in re.sub(r"<[^>]+>", "", html):
        _log.warning("%s has an Annotated type, which docs/prop_types.py must simplify", API)
    return re.sub(r"<table>.*?</table>", lambda table: label_cells(table[0]), html, flags=re.DOTALL)


def label_cells(table: str) -> str:
    """Return a table whose cells name their columns, so that a phone shows each row as a list."""
    labels = [re.sub(r"<[^>]+>|\"", "", heading) for heading in _HEADING.findall(table)]

    def label_row(row: re.Match[str]) -> str:
        label = iter(labels)
        return re.sub(r"<td", lambda _: f'<td data-label="{next(label, "")}"', row[0])

    return _ROW.sub(label_row, table)


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
