"""Storage: EFS and Lustre file systems, mount points, data sources and backups."""
