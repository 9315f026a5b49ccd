"""Hugging Face transformers as the host, on tiny models with random weights."""
