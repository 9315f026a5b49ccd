"""The doctor names what is wrong, and nothing that is not."""
