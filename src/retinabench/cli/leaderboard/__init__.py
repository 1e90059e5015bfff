"""The verbs of the leaderboard: `leaderboard`, `submit` and `site`."""
