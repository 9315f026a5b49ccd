"""What type checkers must accept and refuse."""
