"""Games: one folder each, holding everything that knows its rules."""
