"""Question labels: a table of sentences, and what holds for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.questions import KINDS, classify, pairs_asked
from slim_rl.games.matching.roster import Roster

PAIR = """
What is Ava Li on BLEU?
[message] What is Ava Li on BLEU?
[message] what is noah wilson on swag
Could you share your score for Ava Li on BLEU?
Hi there! Before I propose anything: what value do you see for Sofia Patel on QuAC?
How good is Ava for the GLUE paper?
how good is Morgan at Electra
do you see Daniel's llama?
Can you see Joseph's score for RoBERTa?
Any idea if Noah is good at Glue?
any score for Sofia / QuAC?
What do you have for Ethan on SWAG
Is Ava any good at RoBERTa on your side?
Do you think Andrei would be a strong reviewer for GloVe?
Please tell me your score for Ethan on LLaMA.
Let me know what you have for Ava and BLEU.
I'd like to know how Noah does on Electra.
I have 40 for Ava on GLUE. What do you have for Ava on BLEU?
For Ava Li, what do you see on BLEU and GLUE?
Morgan is blank on SWAG for me, what do you have there?
Does Daniel have a high score on QuAC?
Do you happen to know Sofia's rating for the SWAG paper?
Would you mind telling me your value for Morgan on GloVe?
I was hoping you could share Morgan's score on GloVe.
Requesting Morgan's score on GloVe.
between BLEU and RoBERTa, which is better for Ethan?
I was wondering if you have a score for Joseph on GLUE.
How does Ethan do on QuAC?
Can you give me the numbers for Ava/BLEU and Ava/GLUE?
what's Noah's BLEU
"""
OPEN = """
Who do you have for GloVe?
What do you have for Andrei?
What do you have for Morgan across all papers?
what are your best matches?
Do you have any preference?
who works best for you at swag
Where should we put Joseph?
What information do you have on Sofia?
Do you have any info on Electra?
any suggestions for QuAC?
anything for roberta or quac
Give me your top four!
tell me what you have for Ava
Please share your dark green squares
Let me know your best for Glue
What about Electra?
Noah?
Does anyone else look better for RoBERTa than Sofia?
Is there anyone you think would be better for LLaMA?
Which reviewers score highest on your table?
Which paper is Ethan strongest on?
Could you tell me which reviewers are strong on BLEU?
Could you list all the scores you can see?
Would you be willing to share your highest scores with me?
Do you have any good options for swag besides Sofia?
Andrei can do llama, do you see anything else for him?
I have nothing for Glue. Who is your best there?
What are Ava's strengths?
How does Sofia look in general on your end?
Hello! To get us started, what are your three highest scores?
want to share all your dark greens?
What is Daniel good at?
Where do you think Ava would fit?
I'm curious what you see for Noah.
"""
CHECK = """
How about Daniel for SWAG instead of BLEU?
Does that sound good?
should we lock in Noah?
what do you think?
Ethan on QuAC?
Does that work for you?
I propose Ava for BLEU. Does this work for you?
Would you be open to moving Ava to GLUE?
Would you be open to Joseph taking RoBERTa?
Noah for BLEU, right?
Let's put Daniel on GLUE, ok?
What about Noah for BLEU?
Can we place Sofia on GloVe?
How do you feel about Andrei for GloVe?
Let me know what you think.
let me know if you disagree
tell me what changes you want
what if we swap Noah and Morgan
Maybe Daniel for RoBERTa?
So Ava for RoBERTa then?
How does this look?
Do you agree with this assignment?
Shall we go with this plan?
Are you okay with Daniel on SWAG?
Any objections?
Do you have any objections to this proposal?
Is that fine with you?
Could we switch Ava and Noah?
I am thinking of Joseph on GLUE. Thoughts?
Would it be okay to give BLEU to Morgan?
Does this assignment look good to you?
"""
PROCESS = """
Did you mean Joseph?
are you ready to propose?
can you see the scores too?
how are you?
What do you mean?
Should I send a proposal now?
Can you resend the proposal?
Are you still there?
Did you get my last message?
Why?
Hey, how's it going?
Do you want me to propose?
"""
NOTHING = """
I have nothing for Glue
Ava is great on BLEU.
My score for Ava Li on BLEU is 87.
[message] I do not have a score for Noah Wilson on SWAG.
Sounds good to me!
I don't know who would be good for Electra.
That is what I have for Daniel.
not sure about glove, quac
Let's see how it goes.
Okay, let's put Ava on GLUE.
I will send over a proposal shortly.
Sure, that works for me.
Here is what I see.
unless you have a better option for swag, I would keep her there
I can see everyone in Llama except Noah
[propose]
[accept]
Ethan is best on QuAC, which leaves Morgan for Electra
I do think Andrei is a good fit for QuAC but so is Daniel.
Thank you, that is very helpful.
We should also have Joseph grade RoBERTa.
I can tell you that Ava is strong on SWAG.
If you have something better, go ahead and propose it.
You will be happy to hear Ava Li on BLEU is 62.
It would be great to have Ava on BLEU.
"""
BOTH = [
    ("What do you have for Ava on BLEU? And who is your best for SWAG?", {"pair", "open"}),
    ("What do you think? Do you have any preference for any paper?", {"check", "open"}),
    ("How about Ava for BLEU? What do you have for Noah on GLUE?", {"check", "pair"}),
    ("Hi, how are you? What are your best matches?", {"process", "open"}),
]


def sentences() -> list[tuple[str, frozenset[str]]]:
    groups = [(PAIR, {"pair"}), (OPEN, {"open"}), (CHECK, {"check"}), (PROCESS, {"process"}), (NOTHING, set())]
    rows = [(line, frozenset(labels)) for text, labels in groups for line in text.strip().splitlines()]
    return rows + [(text, frozenset(labels)) for text, labels in BOTH]


@pytest.mark.parametrize(("text", "labels"), sentences())
def test_sentence(text: str, labels: frozenset[str]) -> None:
    assert classify(text) == labels


def test_names_of_another_roster() -> None:
    roster = Roster(("Harper Stone", "Lucas Grey"), ("Zebra: Stripes for Parsing", "Yak"))
    assert classify("What is Harper Stone on Zebra?", roster=roster) == {"pair"}
    assert classify("what do you have for lucas", roster=roster) == {"open"}
    assert classify("lucas for yak?", roster=roster) == {"check"}
    assert classify("Is Harper good at Zebra?") == {"pair"}  # unknown names are known by their capitals


def test_names_that_share_their_words() -> None:
    roster = Roster(("Reviewer 1", "Reviewer 2"), ("Paper A", "Paper B"))
    assert classify("What is Reviewer 2 on Paper A?", roster=roster) == {"pair"}
    assert pairs_asked("What is Reviewer 2 on Paper A?", roster) == [(1, 0)]
    assert classify("What do you have for reviewer 1?", roster=roster) == {"open"}
    assert classify("What is R1 on P7?") != {"pair"}  # spelled like our own tokens, but nobody's name


words = st.lists(
    st.sampled_from(
        [
            "what", "who", "is", "are", "do", "you", "have", "Ava", "BLEU", "on", "for", "?", ",", "/", ".",
            "[message]", "and", "there", "he", "with", "better", "than", "besides", "Noah", "Li", "score", "how",
            "about", "i", "know", "tell", "me", "your", "R1", "P3", "R9", "P_", "~", "'s",
        ]
    ),
    max_size=14,
).map(" ".join)  # fmt: skip


@given(st.text() | words, st.none() | st.text(max_size=30) | words)
def test_any_text_gets_labels(text: str, previous: str | None) -> None:
    labels = classify(text, previous)
    assert labels <= set(KINDS)
    assert classify(text, previous) == labels


@pytest.mark.parametrize(("text", "labels"), sentences())
def test_case_space_and_tag_do_not_matter(text: str, labels: frozenset[str]) -> None:
    bare = text.removeprefix("[message]")
    for form in (
        bare.lower(),
        bare.upper(),
        f"  {bare.replace(' ', '   ')} ",
        f"[message] {bare}",
        f"[ Message ]\n{bare}",
    ):
        if not text.startswith(("[propose]", "[accept]")):
            assert classify(form) == labels, form
