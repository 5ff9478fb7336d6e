"""Access: who calls, which policies the account has, and whether a call is admitted."""
