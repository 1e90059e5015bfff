"""The leaderboard: submissions, the baselines that come with the package, their ranks, and the static site."""
