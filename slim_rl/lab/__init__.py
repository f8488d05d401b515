"""What experiments add to runs and logs; nothing but `commands/` imports it."""
