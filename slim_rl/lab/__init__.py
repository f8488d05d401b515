"""Tools of experiments: arms, contrasts, incentives, gap to the ideal asker, warm start. Only `commands/` imports it."""
