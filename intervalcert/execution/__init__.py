"""Streams of points and outputs, here or in worker processes."""
