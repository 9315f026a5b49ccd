"""State machines that hypothesis drives against a model."""
