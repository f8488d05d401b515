"""Who may sit opposite the policy in the matching game."""
