"""What the documentation says holds."""
