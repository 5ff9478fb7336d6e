"""S3: object listing, download and verification."""
