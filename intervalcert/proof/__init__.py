"""TRUSTED: witnesses and their checks, over any number system. Nothing here searches."""
