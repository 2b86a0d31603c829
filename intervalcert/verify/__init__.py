"""A point or an output: the filter, the vectorised decision, local refinement, deployed floats."""
