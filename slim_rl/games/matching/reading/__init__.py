"""Free text about reviewers and papers, read."""
