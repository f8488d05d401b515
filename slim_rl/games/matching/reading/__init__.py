"""Free text about reviewers and papers, read once, for partners and annotator alike.

masking   names become tokens, lines become sentences and clauses
pairing   which reviewer belongs to which paper, and which value to which pair
wording   how English asks, proposes and points back: patterns and words (wording.yaml)
acts      what a clause does: ask, seek consent, propose, or state
reader    what a message asks and states, names left out being those said last
"""
