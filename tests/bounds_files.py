"""Bounds files changed by hand, as tests do it: row j of the margins is a text of those with the classes before j."""

__all__ = ["set_margin"]


def set_margin(data, i, j, exact=None, decimal=None):
    """Changes what the file says of the pair i < j: the exact text, the decimal beside it, or both."""
    for name, text in (("exact", exact), ("decimal", decimal)):
        if text is not None:
            cells = data["margins"][name][j].split(" ")
            cells[i] = text
            data["margins"][name][j] = " ".join(cells)
