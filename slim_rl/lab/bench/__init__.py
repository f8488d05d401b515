"""The benchmark: suites, result files and leaderboard."""
