"""UNTRUSTED: floats and heuristics that look for witnesses. What they find, `proof` checks."""
