"""The spine of all node programs: files, AWS clients, deadlines, facts, packages, programs and SSH."""
