"""Exact numbers: parsed, rounded, held in matrices, written; float formats and the float environment."""
