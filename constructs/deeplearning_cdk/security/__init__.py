"""Security: roles and their permissions, the encryption key, and acknowledged rules of security gates."""
