"""The tests, one package for each kind."""
