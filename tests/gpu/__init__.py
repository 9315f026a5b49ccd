"""The CUDA path; skipped where no CUDA device is."""
