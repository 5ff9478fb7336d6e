"""Common modules of all node programs: files, AWS clients, deadlines, facts, packages, programs and SSH."""
