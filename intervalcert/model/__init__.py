"""Models: layers, activations, normalisation, and their evaluation over any number system."""
