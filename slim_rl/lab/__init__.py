"""Tools of experiments: arms, contrasts, incentives, gap to the ideal asker, warm start, benchmark. Only `commands/` imports it."""
