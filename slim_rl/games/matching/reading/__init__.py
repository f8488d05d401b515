"""Free text about reviewers and papers, read once, for partners and instrument alike.

masking    names become tokens, words their usual spelling
clauses    the sentences of a message, lists and broken lines put together
pairing    which reviewer belongs to which paper, and which value to which pair
grammar    what a clause does: ask, suggest, or neither; and what it leaves out
reader     what a message asks and states
form       whether a message is a sentence at all
"""
