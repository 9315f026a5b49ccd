"""Measurements: `python -m bench`, which `make bench` runs. No part of the package that users install."""
