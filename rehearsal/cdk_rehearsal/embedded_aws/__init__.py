"""The embedded AWS: moto in process, with what it lacks, driven by a synthesized cloud assembly."""
