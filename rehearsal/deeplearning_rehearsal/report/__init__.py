"""The report of a rehearsal: assessment, page, launchers and environment."""
