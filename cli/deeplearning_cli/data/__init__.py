"""Data for training: download, check, bundle and upload to S3."""
