"""Security: roles, the encryption key, and acknowledged rules of security gates."""
