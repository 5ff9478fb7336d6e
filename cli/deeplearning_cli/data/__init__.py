"""Data for training: datasets that are prepared, bundled, downloaded and put into a bucket."""
