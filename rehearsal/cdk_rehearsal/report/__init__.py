"""Parts of a report that are about any stack: dashboard, metrics and stand-ins."""
