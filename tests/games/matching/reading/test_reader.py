from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()

# Pairs are written "first name/short title"; all of a message's pairs, in the order asked.
ASKS = [
    # short forms
    ("Ava on BLEU?", "Ava/BLEU"),
    ("Ava/BLEU?", "Ava/BLEU"),
    ("BLEU - Ava?", "Ava/BLEU"),
    ("ava bleu?", "Ava/BLEU"),
    ("AVA LI ON BLEU?", "Ava/BLEU"),
    ("Ava's BLEU score?", "Ava/BLEU"),
    ("Ava’s BLEU score?", "Ava/BLEU"),
    ("Score for Ava on BLEU?", "Ava/BLEU"),
    ("Ava on BLEU, please.", "Ava/BLEU"),
    ("OK, so Ava on BLEU?", "Ava/BLEU"),
    ("Hmm, Petrov and RoBERTa?", "Andrei/RoBERTa"),
    ("your score for Ava on BLEU", "Ava/BLEU"),
    ("score for Ava on BLEU", "Ava/BLEU"),
    ("affinity between Ava and BLEU", "Ava/BLEU"),
    ("The rating of Ava for BLEU.", "Ava/BLEU"),
    # what, how, whose
    ("What is Ava Li's score on Electra?", "Ava/Electra"),
    ("what's Ava on BLEU", "Ava/BLEU"),
    ("whats your bleu score for ava", "Ava/BLEU"),
    ("What do you have for Ethan on SWAG?", "Ethan/SWAG"),
    ("What do you see for Ethan under SWAG", "Ethan/SWAG"),
    ("what number is in Morgan's row under GloVe", "Morgan/GloVe"),
    ("What did you get for Reed at glove?", "Morgan/GloVe"),
    ("what about Noah on SWAG", "Noah/SWAG"),
    ("How about Noah for SWAG?", "Noah/SWAG"),
    ("how good is Ava for the GLUE paper", "Ava/GLUE"),
    ("How well does Wilson do at SWAG?", "Noah/SWAG"),
    ("How strong is Petrov for RoBERTa?", "Andrei/RoBERTa"),
    ("How does Noah Wilson fare on the SWAG paper?", "Noah/SWAG"),
    ("hows joseph at llama", "Joseph/LLaMA"),
    ("On BLEU, how is Ava?", "Ava/BLEU"),
    ("For Ava on BLEU, what do you have?", "Ava/BLEU"),
    ("Ava Li on BLEU: what do you see?", "Ava/BLEU"),
    ("As for Ava, what is her BLEU score?", "Ava/BLEU"),
    ("What do you think of Sofia for QuAC?", "Sofia/QuAC"),
    ("What score did you assign to Ava on BLEU?", "Ava/BLEU"),
    # yes-or-no questions
    ("any score for Sofia / QuAC?", "Sofia/QuAC"),
    ("Any info about Ethan on QuAC", "Ethan/QuAC"),
    ("do you see anything for Ethan at LLaMA", "Ethan/LLaMA"),
    ("Do you have Ava on BLEU?", "Ava/BLEU"),
    ("Do you know Morgan's Electra score?", "Morgan/Electra"),
    ("Do you have a number for Ava Li in the BLEU column?", "Ava/BLEU"),
    ("got anything for Ava on BLEU", "Ava/BLEU"),
    ("Is Ava good on BLEU?", "Ava/BLEU"),
    ("is ava any good at bleu", "Ava/BLEU"),
    ("Is Santos high on GLUE for you?", "Joseph/GLUE"),
    ("Would Ava be a good fit for BLEU?", "Ava/BLEU"),
    ("Does Joseph do well on GloVe", "Joseph/GloVe"),
    ("Can Daniel do Electra?", "Daniel/Electra"),
    ("Do you think Andrei is strong on QuAC?", "Andrei/QuAC"),
    ("Is Andrei good on QuAC, yes or no?", "Andrei/QuAC"),
    # requests
    ("tell me Ava's BLEU score", "Ava/BLEU"),
    ("Tell me about Ava on BLEU.", "Ava/BLEU"),
    ("Please share your score for Morgan on GLUE.", "Morgan/GLUE"),
    ("Could you tell me what you have for Sofia on QuAC?", "Sofia/QuAC"),
    ("Can you tell me the value of (Sofia, QuAC)?", "Sofia/QuAC"),
    ("Let me know Noah's SWAG score.", "Noah/SWAG"),
    ("Give me Ava on BLEU and Noah on SWAG.", "Ava/BLEU Noah/SWAG"),
    ("I'm wondering how Ava does on BLEU.", "Ava/BLEU"),
    ("I am curious about Daniel's Electra.", "Daniel/Electra"),
    ("I'd like to know Ava's score on BLEU", "Ava/BLEU"),
    ("I need your score for Andrei on GLUE.", "Andrei/GLUE"),
    ("Compare Ava and Noah on BLEU.", "Ava/BLEU Noah/BLEU"),
    # polite ones
    ("Would you mind telling me Ava Li's score on BLEU?", "Ava/BLEU"),
    ("Would you mind sharing Ava on BLEU?", "Ava/BLEU"),
    ("I need Ava's score for BLEU.", "Ava/BLEU"),
    ("I'd appreciate Ava's score on BLEU.", "Ava/BLEU"),
    ("I would appreciate it if you could tell me Ava's score on BLEU.", "Ava/BLEU"),
    ("It would help to know Ava's score on BLEU.", "Ava/BLEU"),
    ("I was hoping you could share Ava's score on BLEU.", "Ava/BLEU"),
    ("Requesting Ava's score on BLEU.", "Ava/BLEU"),
    ("Rate Ava on BLEU.", "Ava/BLEU"),
    ("Confirm Ava's score on BLEU.", "Ava/BLEU"),
    ("I would like your score for Ava on BLEU, please.", "Ava/BLEU"),
    ("I'd be grateful for Ava's score on BLEU.", "Ava/BLEU"),
    ("Looking for Ava's score on BLEU.", "Ava/BLEU"),
    ("Let me ask about Ava's score for BLEU.", "Ava/BLEU"),
    ("Thanks. Same question for Ava on BLEU.", "Ava/BLEU"),
    ("I'd be happy to hear your score for Ava on BLEU.", "Ava/BLEU"),
    # full titles, typed names, form
    ("Do you have Ava Li - BLEU: a Method for Automatic Evaluation of MT?", "Ava/BLEU"),
    ("How is Electra: Pre-training Text Encoders as Discriminators with Daniel Nguyen?", "Daniel/Electra"),
    ("[message] How is Ava on BLEU?", "Ava/BLEU"),
    ("**[message]** How is Ava on BLEU?", "Ava/BLEU"),
    ("[reject] Noah is weak there. How is Ava on BLEU?", "Ava/BLEU"),
    ("How is Ava<br/>on BLEU?", "Ava/BLEU"),
    ("Andrei for glove\n?", "Andrei/GloVe"),
    ("Ava on BLEU\uff1f", "Ava/BLEU"),
    ("Ava on BLEU\uff0cNoah on SWAG\uff1f", "Ava/BLEU Noah/SWAG"),
    # several pairs
    ("Ava on BLEU and GLUE?", "Ava/BLEU Ava/GLUE"),
    ("Ava or Sofia for QuAC?", "Ava/QuAC Sofia/QuAC"),
    ("Ava, Noah and Sofia on BLEU?", "Ava/BLEU Noah/BLEU Sofia/BLEU"),
    ("scores for Ava-BLEU, Noah-SWAG?", "Ava/BLEU Noah/SWAG"),
    ("Ava/BLEU, SWAG/Noah?", "Ava/BLEU Noah/SWAG"),
    ("How are Ava on BLEU and GLUE and Noah on SWAG?", "Ava/BLEU Ava/GLUE Noah/SWAG"),
    ("Ava on BLEU, GLUE for Noah?", "Ava/BLEU Noah/GLUE"),
    ("BLEU for Ava or Noah, and GLUE for Sofia?", "Ava/BLEU Noah/BLEU Sofia/GLUE"),
    ("What are your values for Ava and Noah on BLEU and GLUE?", "Ava/BLEU Ava/GLUE Noah/BLEU Noah/GLUE"),
    ("Ava and Noah on BLEU and GLUE respectively?", "Ava/BLEU Noah/GLUE"),
    ("Ava on BLEU, or Noah?", "Ava/BLEU Noah/BLEU"),
    ("Who is better on BLEU: Ava or Noah?", "Ava/BLEU Noah/BLEU"),
    ("Is Ava better than Noah on BLEU?", "Ava/BLEU Noah/BLEU"),
    ("Which is better for Ava, BLEU or GLUE?", "Ava/BLEU Ava/GLUE"),
    ("How would Ava do on GLUE vs. SWAG?", "Ava/GLUE Ava/SWAG"),
    ("How about Daniel for SWAG instead of BLEU?", "Daniel/SWAG"),
    ("Between Ava and Noah, who is better on BLEU?", "Ava/BLEU Noah/BLEU"),
    ("Ava or Noah on BLEU, who is better?", "Ava/BLEU Noah/BLEU"),
    ("With Ava on BLEU, what is Noah on SWAG?", "Noah/SWAG"),
    ("What about Ava on BLEU? And Noah on SWAG?", "Ava/BLEU Noah/SWAG"),
    ("How is Ava on BLEU? And on GLUE?", "Ava/BLEU Ava/GLUE"),
    ("How is Ava on BLEU? What about Noah?", "Ava/BLEU Noah/BLEU"),
    ("Is Ava good on BLEU? And is Ava good on BLEU?", "Ava/BLEU"),
    # lists
    ("Can you give me the scores for these pairs:\n- Ava Li - BLEU\n- Noah Wilson - SWAG", "Ava/BLEU Noah/SWAG"),
    ("What do you have for these pairs?\n1. Ava Li on BLEU\n2. Noah on SWAG", "Ava/BLEU Noah/SWAG"),
    ("Please tell me the following:\nAva on BLEU\nNoah on SWAG", "Ava/BLEU Noah/SWAG"),
    ("What is your score for Ava on:\n- BLEU\n- GLUE", "Ava/BLEU Ava/GLUE"),
    # a statement beside a question
    ("I have 62 for Ava on BLEU. How is Noah on SWAG?", "Noah/SWAG"),
    ("I have 62 for Ava on BLEU, what about Noah on SWAG?", "Noah/SWAG"),
    ("How is Ava on BLEU, I have 62 for Noah on SWAG", "Ava/BLEU"),
    ("My best is Ava on GLUE with 88; what do you have for Noah on SWAG?", "Noah/SWAG"),
    ("I want Ava on GLUE. What is Noah's score on SWAG?", "Noah/SWAG"),
    ("Let's put Ava on GLUE, but how is Noah on SWAG?", "Noah/SWAG"),
    ("Never mind Ava on BLEU, what about Noah on SWAG?", "Noah/SWAG"),
    ("I have no score for Ava on BLEU, do you?", "Ava/BLEU"),
    ("I have 62 for Ava on BLEU, and you?", "Ava/BLEU"),
    ("I can't see Ava's score on BLEU. Could you share it?", "Ava/BLEU"),
    ("I don't see Ava on BLEU. Can you tell me that score?", "Ava/BLEU"),
    ("I have 62 for Noah on SWAG. Is Ava on BLEU above it?", "Ava/BLEU"),
    ("Do you have any score above 50 for Ava on BLEU?", "Ava/BLEU"),
    ("Is Noah on SWAG above Ava on BLEU?", "Noah/SWAG Ava/BLEU"),
    ("I see Ava Li on BLEU: 62. What do you see for this pair?", "Ava/BLEU"),
    ("What do you have for Ava? And what is Noah on SWAG?", "Noah/SWAG"),
]

GENERAL = [
    "What do you have for Andrei?",
    "what are your best matches?",
    "Do you have any preference?",
    "What scores do you see?",
    "Tell me your scores.",
    "Could you please share your table?",
    "Who do you have for GloVe?",
    "Which papers is Ava good at?",
    "Which reviewer is best for BLEU?",
    "Who should review BLEU?",
    "Who besides Ava is good on BLEU?",
    "Anyone other than Noah for SWAG?",
    "Do you have someone better than Ava for BLEU?",
    "Does anyone look better for RoBERTa than Sofia?",
    "Which of your scores are above Ava on BLEU?",
    "Which of your scores beat mine for Ava on BLEU?",
    "Are there any scores higher than Ava Li's on BLEU in your table?",
    "Is there a better pair than Ava on BLEU?",
    "How many of your scores are higher than my score of Ava on BLEU?",
    "What's better than Ava on BLEU?",
    "With Ava on BLEU, who is your best for GLUE?",
    "With Ava on BLEU, what is your best for GLUE?",
    "Ava on BLEU, who is left for GLUE?",
    "Anyone but Ava on BLEU?",
    "Ava on BLEU is 62, who is good on GLUE?",
    "Ava is 62 on BLEU; where is Noah strong?",
    "Where should Ava go?",
    "What about Ava?",
    "BLEU?",
    "How are you? I have Ava on BLEU at 62.",
    "What do you have for Ava? My best for her is BLEU.",
    "My scores are Ava BLEU 62 and Noah SWAG 10. What about you?",
    "I have 62 for Ava on BLEU. What do you have?",
    "I think Ava would be good for BLEU, what do you think?",
]

SUGGESTIONS = [
    "Let's put Ava on BLEU.",
    "Let's go with Ava on BLEU and Noah on SWAG?",
    "Should we put Ava on BLEU?",
    "Shall we place Noah on SWAG?",
    "Can we put Noah on SWAG?",
    "How about we put Ava on BLEU?",
    "How about putting Ava on BLEU?",
    "What if Ava takes BLEU?",
    "Why not Ava on BLEU?",
    "Do you agree to Ava on BLEU?",
    "Does Ava on BLEU work for you?",
    "Is Ava on BLEU ok with you?",
    "How does Andrei for Electra sound?",
    "Would you accept Ava on BLEU and Noah on SWAG?",
    "Ava on BLEU is 62, right?",
    "Joseph would be better for BLEU, so maybe assign Andrei to GloVe?",
    "I propose Ava for BLEU, Noah for SWAG.",
    "Please confirm that we can give BLEU to Ava.",
]

STATEMENTS = [
    "Hello!",
    "Ava on BLEU.",
    "I have 62 for Ava on BLEU.",
    "Ava on BLEU is 62",
    "I have no score for Ava on BLEU.",
    "I don't see Noah on SWAG.",
    "I'm not sure about Ava on BLEU",
    "I don't know how good Ava is on BLEU.",
    "I know how good Ava is on BLEU.",
    "I know for sure Noah is the best for GloVe, and Ethan is great at GLUE",
    "Ava is great on BLEU!",
    "I would like Ava on BLEU.",
    "Ava should go to BLEU, which is her best.",
    "I have Sofia on QuAC, which leaves Morgan for Electra",
    "That's what I have for Ava on BLEU",
    "What I have for Ava on BLEU is 62.",
    "The score of Ava on BLEU, 62, is high.",
    "score for Ava on BLEU: 62",
    "Let me tell you: Ava on BLEU is 62.",
    "I will share my score: Ava on BLEU 62",
    "You told me Ava on BLEU is 62.",
    "Thanks for the score for Ava on BLEU.",
    "Don't tell me Ava on BLEU.",
    "No need to tell me Ava on BLEU.",
    "I asked about Ava on BLEU already.",
    "Good to know that Ava is 62 on BLEU.",
    "That is helpful to know, Ava on BLEU is 62 for me.",
    "I rate Ava on BLEU 62.",
    "I confirm Ava's score on BLEU: 62.",
    "I appreciate the score of Ava on BLEU.",
    "Hope you are happy with Ava on BLEU.",
    "Please note that Ava on BLEU is 62.",
    "Please note: Ava on BLEU is 62.",
    "Please remember that Ava scored 62 on BLEU.",
    "Please be aware that Ava has 62 on BLEU.",
    "Please consider Ava for BLEU.",
    "Please see my score: Ava on BLEU 62.",
    "I'm glad to hear Ava on BLEU is 62.",
    "I am happy to hear that Ava is good on BLEU.",
    "You will be happy to hear Ava on BLEU is 62.",
    "You may want to know: Ava on BLEU is 62.",
    "Let me check Ava on BLEU: it is 62.",
    "Thanks for your question about Ava on BLEU.",
    "You answered my question about Ava on BLEU.",
    "My question about Ava on BLEU was answered.",
    "How nice that Ava on BLEU is 62.",
    "I am looking for a good plan, perhaps with Ava on BLEU.",
    "Ava: BLEU, Noah: SWAG, Sofia: QuAC",
    "[accept] How is Ava on BLEU?",
    "[propose]\nBLEU: Ava Li\nGLUE: Noah Wilson",
    "",
    "?!",
]

TELLS = [
    ("Ava on BLEU is 62", {"Ava/BLEU": 62}),
    ("I have 62 for Ava/BLEU", {"Ava/BLEU": 62}),
    ("[message] Ava Li on BLEU: 62. I have no score for Ava Li on GLUE.", {"Ava/BLEU": 62}),
    ("Ava: BLEU 62, GLUE 10", {"Ava/BLEU": 62, "Ava/GLUE": 10}),
    ("Ava Li: BLEU 62, GLUE 10; Noah Wilson: SWAG 30.", {"Ava/BLEU": 62, "Ava/GLUE": 10, "Noah/SWAG": 30}),
    ("BLEU: Ava 62, Noah 33; GLUE: Ava 10", {"Ava/BLEU": 62, "Noah/BLEU": 33, "Ava/GLUE": 10}),
    ("Ava has 62 on BLEU and 10 on GLUE, and Noah has 33 on SWAG", {"Ava/BLEU": 62, "Ava/GLUE": 10, "Noah/SWAG": 33}),
    ("62 for Ava on BLEU, 10 for Noah on SWAG", {"Ava/BLEU": 62, "Noah/SWAG": 10}),
    ("Ava BLEU 62 GLUE 10 SWAG 30", {"Ava/BLEU": 62, "Ava/GLUE": 10, "Ava/SWAG": 30}),
    ("Ava on BLEU, 62.", {"Ava/BLEU": 62}),
    ("Ava-BLEU=612.5", {"Ava/BLEU": 612.5}),
    ("My scores:\n- Ava Li:\n  - BLEU: 62\n  - GLUE: 5\n- Noah Wilson:\n  - BLEU: 3", {"Ava/BLEU": 62, "Ava/GLUE": 5, "Noah/BLEU": 3}),
    ("1. Ava - BLEU: 62\n2. Noah - SWAG: 10", {"Ava/BLEU": 62, "Noah/SWAG": 10}),
    ("I have 62 for Ava on BLEU, what about Noah on SWAG?", {"Ava/BLEU": 62}),
    ("Is Ava above 50 on BLEU?", {}),
    ("I have at least 60 for Ava on BLEU", {}),
    ("Ava is 9/10 on BLEU", {}),
    ("I have no score for Ava on BLEU but 62 on GLUE.", {"Ava/GLUE": 62}),
    ("We need 300 points in all.", {}),
    ("Please note that Ava on BLEU is 62.", {"Ava/BLEU": 62}),
    ("For the 3 papers left I have no score for Ethan on RoBERTa", {}),
]  # fmt: skip


def named(pair: tuple[int, int]) -> str:
    return f"{ROSTER.first_names[pair[0]]}/{ROSTER.short_papers[pair[1]]}"


@pytest.mark.parametrize(("text", "pairs"), ASKS)
def test_pairs_directly_asked_about(text: str, pairs: str) -> None:
    assert [named(pair) for pair in read(text, ROSTER).asked] == pairs.split()


@pytest.mark.parametrize("text", GENERAL)
def test_a_general_question_asks_about_no_pair(text: str) -> None:
    heard = read(text, ROSTER)
    assert heard.asked == ()
    assert heard.general


@pytest.mark.parametrize("text", SUGGESTIONS)
def test_a_suggestion_asks_for_agreement_and_no_score(text: str) -> None:
    heard = read(text, ROSTER)
    assert heard.asked == ()
    assert heard.suggests


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_asks_nothing(text: str) -> None:
    heard = read(text, ROSTER)
    assert heard.asked == ()
    if text != "?!":
        assert not heard.general


@pytest.mark.parametrize(("text", "values"), TELLS)
def test_values_told(text: str, values: dict[str, float]) -> None:
    assert {named(pair): value for pair, value in read(text, ROSTER).statements} == values


def test_the_table_is_large_enough() -> None:
    assert len(ASKS) >= 60
    assert len(GENERAL) + len(SUGGESTIONS) + len(STATEMENTS) >= 60


@pytest.mark.parametrize(
    "question",
    [
        "How is {r} on {p}?",
        "What about {r} for {p}",
        "Do you have {p} for {r}?",
        "Tell me {r}'s {p} score.",
        "{r}/{p}?",
    ],
)
def test_every_pair_by_every_name(question: str) -> None:
    for r, reviewer in enumerate(ROSTER.reviewers):
        for p, paper in enumerate(ROSTER.papers):
            for name in (reviewer, *reviewer.split()):
                for title in (paper, ROSTER.short_papers[p], ROSTER.short_papers[p].lower()):
                    assert read(question.format(r=name, p=title), ROSTER).asked == ((r, p),)


def test_names_are_the_rosters_own() -> None:
    roster = Roster(("Zoë Ångström", "R2 D2"), ("Paper 7: on numbers", "P0"))
    assert read("How is Zoë on Paper 7?", roster).asked == ((0, 0),)
    assert read("R2 D2 on P0?", roster).asked == ((1, 1),)
    assert read("R2 D2 on Paper 7: 33.", roster).statements == (((1, 0), 33),)
    assert read("How is Ava on BLEU?", roster).asked == ()


words = st.sampled_from(
    """
    Ava Li Noah BLEU GLUE QuAC on for and or how is what about do you have I 62 7 ? . , : ; - ( ) / let's put [message]
    [reject] please tell me not besides than respectively who which any score <br> ’ R0 P0 1. 0.5
    """.split()  # noqa: SIM905
)


@given(
    st.one_of(
        st.text(max_size=300), st.text(string.printable, max_size=300), st.lists(words, max_size=40).map(" ".join)
    )
)
def test_no_text_raises_and_pairs_are_named(text: str) -> None:
    heard = read(text, ROSTER)
    mentions = ROSTER.find(text)
    reviewers = {mention.index for mention in mentions if mention.kind == "reviewer"}
    papers = {mention.index for mention in mentions if mention.kind == "paper"}
    for reviewer, paper in (*heard.asked, *(pair for pair, _ in heard.statements)):
        assert reviewer in reviewers
        assert paper in papers
    assert len(set(heard.asked)) == len(heard.asked)


def test_human_messages_are_heard(dialop_human) -> None:  # type: ignore[no-untyped-def]
    import json

    asked = messages = 0
    for line in (dialop_human / "optimization.jsonl").read_text(encoding="utf-8").splitlines():
        for action in json.loads(line)["action_log"]:
            if action["type"] == "message":
                messages += 1
                asked += bool(read(action["message"]["data"], ROSTER).asked)
    assert messages > 1000
    assert 0.03 * messages < asked < 0.15 * messages  # people mostly state and suggest


@pytest.mark.parametrize("text", ["\uff9e", "ﾊ\uff9e \uff9f 62", "[message] \uff9e?"])
def test_a_word_of_marks_alone_is_a_word(text: str) -> None:
    heard = read(text, ROSTER)
    assert not heard.asked and not heard.statements
