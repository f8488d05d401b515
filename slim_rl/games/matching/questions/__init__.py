"""The measuring instrument: what a message asks, what a question is worth, and what a dialogue shows of both."""
