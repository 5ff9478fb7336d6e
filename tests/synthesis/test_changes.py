"""The table of changes of docs/operating.md, from two hundred templates."""

from docs.change_table import changes_table
from docs.generate import OPERATING, fill


def test_the_table_of_changes_is_that_of_the_templates():
    text = OPERATING.read_text()
    assert fill(text, "changes", changes_table()) == text, "run: make docs"
