"""Norms and margins of a model: search, then proof, on a ladder of number systems; audits."""
