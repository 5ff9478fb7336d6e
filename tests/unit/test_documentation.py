"""The generated parts of the documentation are what the code and the tests say today."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import grimp
import pytest
import tomllib

import cdk_rehearsal
import deeplearning_cdk
from deeplearning_contract.version import VERSION
from docs.fault_table import (
    TABLE,
    Row,
    find_mistakes,
    read_catalogue,
    render_table,
    summarize,
)
from docs.fault_trials import Trial, find_trials, read_tests

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator():
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generator):
    text = generator.ARCHITECTURE.read_text()
    assert generator.render(text) == text, "run: make docs"
    assert all(len(row.split("|")[2].split()) > 2 for row in generator.folders_table().splitlines()[2:])
    assert generator.COMMANDS.read_text() == generator.commands_reference(), "run: make docs"
    assert generator.RESOURCES.read_text() == generator.render_rehearsed_resources(), "run: make docs"
    text = generator.ERRORS.read_text()
    assert generator.fill(text, "launch failures", generator.launch_failures_table()) == text, "run: make docs"
    text, example = generator.IMPORT.read_text(), f"```python\n{generator.consumer_app()}\n```"
    assert generator.fill(text, "consumer app", example) == text, "run: make docs"


def test_the_diagrams_of_packages_draw_the_dependencies_that_are_there():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*config["root_packages"], cache_dir=None)
    imported = {name: set() for name in config["root_packages"]}
    for module in graph.modules:
        name = module.partition(".")[0]
        imported[name] |= {each.partition(".")[0] for each in graph.find_modules_directly_imported_by(module)} - {name}
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = {name: set() for name in imported}
    for importer, target in re.findall(r"^    (\w+) --> (\w+)$", text, re.MULTILINE):
        drawn[importer].add(target)
    for name, packages in imported.items():
        assert drawn[name] <= packages <= _follow(drawn, name), name


def _follow(arrows, start):
    """Return every package that arrows lead to, over others too."""
    return arrows[start].union(*(_follow(arrows, name) for name in arrows[start]))


def test_the_table_of_props_is_up_to_date_and_an_old_one_is_noticed(generator):
    text, content = generator.PROPS.read_text(), generator.props_reference()
    assert generator.fill(text, "props", content) == text, "run: make docs"
    old = text.replace("`workers.min_capacity`", "`workers.least`")
    assert generator.fill(old, "props", content) != old


# --- The reference of the API -------------------------------------------------------------------------

PUBLIC = [
    pytest.param(package, name, id=f"{package.__name__}.{name}")
    for package in (deeplearning_cdk, cdk_rehearsal)
    for name in package.__all__
]


def test_the_reference_of_the_api_is_up_to_date(generator):
    assert generator.API.read_text() == generator.api_reference(), "run: make docs"


def test_a_new_public_class_appears_in_the_reference(generator, monkeypatch):
    monkeypatch.setattr(deeplearning_cdk, "Row", Row, raising=False)
    monkeypatch.setattr(deeplearning_cdk, "__all__", [*deeplearning_cdk.__all__, "Row"])
    page = generator.api_reference()
    assert "| `Row` | Row of the catalogue. |\n" in page
    assert "\n::: deeplearning_cdk.Row\n" in page


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_every_public_name_has_an_entry_and_docstrings(package, name):
    entries = (ROOT / "docs" / "reference" / "api.md").read_text().splitlines()
    assert entries.count(f"::: {package.__name__}.{name}") == 1
    documented = dict(_list_docstrings(getattr(package, name)))
    assert [member for member, text in documented.items() if not text] == []
    # Griffe reads a section only where its title has a line of its own.
    assert [member for member, text in documented.items() if re.search(r"\S +(Args|Attributes|Raises):", text)] == []


def _list_docstrings(documented):
    """Yield the names and docstrings of a class or function and of its public members, inherited ones excluded."""
    yield documented.__name__, documented.__doc__ or ""
    for name, member in vars(documented).items() if inspect.isclass(documented) else ():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function.__doc__ or ""


# --- The site -----------------------------------------------------------------------------------------


@pytest.fixture
def site_pages(monkeypatch):
    """Return the hooks of the site; mkdocs has an environment of its own, and the tested functions do not use it."""
    for name in ("mkdocs", "mkdocs.plugins", "mkdocs.structure", "mkdocs.structure.files"):
        monkeypatch.setitem(sys.modules, name, Mock())
    specification = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_cells_of_tables_have_the_names_of_their_columns(site_pages):
    head = '<table>\n<thead>\n<tr>\n<th style="width: 9px;">a <code>"b"</code></th>\n<th>c</th>\n</tr>\n</thead>\n'
    body = "<tbody>\n<tr>\n<td>1</td>\n<td>2</td>\n</tr>\n<tr>\n<td>3</td>\n<td></td>\n</tr>\n</tbody>\n</table>"
    row = '<td data-label="a b">{}</td>\n<td data-label="c">{}</td>\n'
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.md"))
    text = site_pages.on_page_content(f"<td>{head}{body}", page)
    assert text.startswith(f"<td>{head}")
    assert row.format("1", "2") in text
    assert row.format("3", "") in text


def test_the_site_shows_the_version_and_links_to_the_repository_of_the_metadata(site_pages, monkeypatch, tmp_path):
    source = SimpleNamespace(file=SimpleNamespace(src_uri="contributing.md"), edit_url=None)
    config = site_pages.on_config(SimpleNamespace(site_name="deeplearning-cdk"))
    assert config.copyright == f"deeplearning-cdk {VERSION}, Apache-2.0"
    (tmp_path / "contract" / "deeplearning_contract").mkdir(parents=True)
    (tmp_path / site_pages.VERSION).write_text('VERSION = "9.0.0"')
    monkeypatch.setattr(site_pages, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    config = site_pages.on_config(SimpleNamespace(site_name="x"))
    assert (config.repo_url, site_pages.on_pre_page(source, config).edit_url) == (None, None)
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nSource = "https://git.example.com/team/x/"\n')
    config = site_pages.on_config(SimpleNamespace(site_name="x"))
    assert (config.copyright, config.repo_url, config.repo_name) == (
        "x 9.0.0, Apache-2.0",
        "https://git.example.com/team/x",
        "x",
    )
    edit_url = site_pages.on_pre_page(source, config).edit_url
    assert edit_url == "https://git.example.com/team/x/edit/main/CONTRIBUTING.md"


def test_pages_request_nothing_from_the_repository(site_pages):
    page = SimpleNamespace(file=SimpleNamespace(dest_uri="index.html"))
    # Material for MkDocs requests api.github.com for such elements (its javascripts/components/source).
    link = '<a href="https://github.com/a/b" class="md-source" data-md-component="source">'
    assert "data-md-component" not in site_pages.on_post_page(link, page)


# --- The table of faults ------------------------------------------------------------------------------

ROWS = [
    Row(1, "It breaks", "goes on"),
    Row(2, "It bends", "fails with the reason", lacks="an alarm"),
    Row(3, "It flies", "lands", exemption="cannot occur: no wings"),
    Row("D01", "It broke"),
]
BREAKS = Trial("tests/a.py::test_breaks", "tests/a.py", "it goes on", frozenset({1}), frozenset({"D01"}))
BENDS = Trial("bend", "cases/bend.toml", "A <bend>", frozenset({1, 2}), frozenset(), "case")


def test_the_catalogue_numbers_faults_and_the_79_defects_without_a_gap():
    keys = [row.key for row in read_catalogue(ROOT)]
    faults = len(keys) - 79
    assert keys == [*range(1, faults + 1), *(f"D{number:02}" for number in range(1, 80))]


@pytest.fixture(scope="module")
def trials():
    return tuple(find_trials(ROOT))


def test_every_row_of_the_catalogue_is_accounted_for(trials):
    assert find_mistakes(read_catalogue(ROOT), trials) == []


def test_the_table_of_faults_shows_what_tries_each_row_today(trials):
    assert (ROOT / TABLE).read_text() == render_table(read_catalogue(ROOT), trials), "run: make docs"


def test_the_table_names_the_trials_of_each_row_or_why_there_is_none():
    lines = render_table(ROWS, [BREAKS, BENDS]).splitlines()
    both = "[it goes on](../tests/a.py)<br>rehearsal: [A \\<bend\\>](../cases/bend.toml)"
    assert f"| 1 | It breaks | goes on | {both} |" in lines
    (bends,) = (line for line in lines if line.startswith("| 2 "))
    assert bends.startswith("| 2 | It bends | fails with the reason; **not yet: an alarm** | ")
    assert bends.endswith("(../cases/bend.toml) |")
    assert "| 3 | It flies | lands | cannot occur: no wings |" in lines
    assert "| D01 | It broke | [it goes on](../tests/a.py) |" in lines


def test_mistakes_between_catalogue_and_marks_are_named():
    stranger = Trial("x", "tests/x.py", "strange", frozenset({3, 70}), frozenset({"D00"}))
    assert find_mistakes(ROWS, [BREAKS, BENDS]) == []
    assert find_mistakes(ROWS, [BENDS, stranger]) == [
        "tests/x.py: 'strange' tries 70, which the catalogue does not have",
        "tests/x.py: 'strange' tries D00, which the catalogue does not have",
        "3 (It flies) is tried, and yet cannot occur: no wings",
        "D01 (It broke) has no test, no case and no reason",
    ]


def test_a_test_of_a_stand_in_is_listed_and_does_not_count(tmp_path):
    folder = tmp_path / "tests" / "embedded_aws"
    folder.mkdir(parents=True)
    (folder / "test_all.py").write_text("@pytest.mark.fault(2)\ndef test_bends(): ...\n")
    (injector,) = find_trials(tmp_path)
    assert find_mistakes(ROWS, [BREAKS, injector]) == ["2 (It bends) has no test, no case and no reason"]
    assert summarize(ROWS, [BREAKS, injector]).endswith(", nothing tries 2")
    page = render_table(ROWS, [BREAKS, injector])
    assert "nothing yet<br>injector: [bends](../tests/embedded_aws/test_all.py) |" in page


def test_the_catalogue_is_summed_up_in_a_line():
    assert summarize(ROWS, [BREAKS]) == ("faults: 3 rows, 1 with tests, 0 with cases, 1 cannot occur, nothing tries 2")
    assert summarize(ROWS, [BREAKS, BENDS]) == "faults: 3 rows, 1 with tests, 2 with cases, 1 cannot occur"


def test_marks_are_read_wherever_they_stand(tmp_path):
    (tmp_path / "test_all.py").write_text(
        """
import pytest
pytestmark = pytest.mark.fault(9)
@pytest.mark.fault(1, 2)
@pytest.mark.parametrize(
    "x", [pytest.param(1, marks=pytest.mark.fault(3)), pytest.param(2, marks=[pytest.mark.defect("D04")])]
)
@pytest.mark.defect("D02", "D16")
def test_only_in_service_counts(x): ...
def test_plain(): ...
def helper(): ...
"""
    )
    first, second = read_tests(tmp_path, tmp_path / "test_all.py")
    assert (first.faults, first.defects) == ({1, 2, 3, 9}, {"D02", "D04", "D16"})
    assert (first.key, first.title) == ("test_all.py::test_only_in_service_counts", "only in service counts")
    assert (second.faults, second.defects) == ({9}, frozenset())


@pytest.mark.parametrize("mark", ["fault", "fault()", "fault(*ROWS)", 'fault("1")', "fault(True)", "defect(1)"])
def test_a_mark_that_cannot_be_read_is_refused(tmp_path, mark):
    (tmp_path / "test_one.py").write_text(f"@pytest.mark.{mark}\ndef test_one(): ...\n")
    with pytest.raises(ValueError, match=r"test_one.py:1: \w+ must be given plain"):
        list(read_tests(tmp_path, tmp_path / "test_one.py"))


@pytest.mark.parametrize(
    "text",
    [
        "test_one = pytest.mark.fault(7)(test_one)",
        "class TestOne:\n    @pytest.mark.fault(7)\n    def test_one(self): ...",
    ],
)
def test_a_mark_that_the_table_would_miss_is_refused(tmp_path, text):
    (tmp_path / "test_one.py").write_text(f"def test_one(): ...\n{text}\n")
    with pytest.raises(ValueError, match=r"test_one.py:[23]: fault must decorate a function or stand in pytestmark"):
        list(read_tests(tmp_path, tmp_path / "test_one.py"))
