"""The report as one self-contained HTML page with a timeline."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplearning_rehearsal.report.report import Document, list_details, list_sections
from deeplearning_rehearsal.report.timeline_picture import draw_timeline


def render_page(report: Document, *, dashboard: str = "") -> str:
    """
    Render the page; it needs no network and no other file.

    Args:
        report: What was found out.
        dashboard: The file beside it that shows the stack's dashboard. Default: there is none.
    """
    environment = Environment(
        loader=PackageLoader("deeplearning_rehearsal.report", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        dashboard=dashboard,
        picture=draw_timeline(report),
        sections=list_sections(report),
        details=list_details(report),
    )
