"""Why rows are behind, by their names: written by hand, from measurements, and printed with the tables."""

WHY: dict[str, str] = {}
