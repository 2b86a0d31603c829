"""Files: models, tables, bounds files; written atomically."""
