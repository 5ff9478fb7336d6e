"""The HTTP server in front of moto: signatures, operations, refusals, and Session Manager."""
