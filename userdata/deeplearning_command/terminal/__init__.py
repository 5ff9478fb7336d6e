"""The terminal: tables and errors as users see them."""
