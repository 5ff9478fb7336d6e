"""Archives: safe extraction of tar and zip files."""
