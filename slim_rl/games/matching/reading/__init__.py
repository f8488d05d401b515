"""Free text about reviewers and papers, read once.

    masking    names become tokens, words their usual spelling
    clauses    the sentences of a message, lists and broken lines put together
    pairing    which reviewer belongs to which paper, and which value to which pair
    patterns   how lists of wordings are written down
    form       whether a message is a sentence at all

Two sets of rules stand on these and know nothing of each other: `wording` and `interpretation` say what a scripted partner answers,
and `slim_rl.games.matching.questions` says what the measuring instrument counts.
"""
