"""Acts of a clause by its wording: it asks, seeks consent, proposes, or states.

A clause asks only if a question mark closes it or it begins as a question or a request. Patterns read masked text (`masking`).
"""

import re
from typing import Literal

from slim_rl.games.matching.reading.masking import NAME

# The kinds of question, and how a page names each.
KINDS = {"pair": "about a pair", "open": "open", "check": "asking for agreement", "process": "about the game"}
INFORMATION_SEEKING = frozenset({"pair", "open"})

# ask: seeks information. name: only names a pair ("Ava on BLEU?"), which the guide calls a suggestion and a partner answers.
# check: seeks consent or an opinion. propose: a plan without a question. process: another question. none: a statement.
Act = Literal["ask", "name", "check", "propose", "process", "none"]

TERMS = {
    "name": r"[RP]\d+",
    "aux": r"(?:is|are|was|were|do|does|did|has|have|had|can|could|would|will|might|may|am)(?:n't)?|can't|won't",
    "score": r"scores?|values?|numbers?|figures?|ratings?|points?|cells?|entry|entries|data|information|match|fit|idea|clue|squares?|preferences?",
    "good": r"good|great|bad|well|strong\w*|weak\w*|high\w*|low\w*|better|best|worse|worst|suit\w*|qualified|skilled|expert|familiar|fit|known|visible",
    "tell": r"tell|share|give(?! up)|send|show|provide|report|list|state|reveal|name|read|look up|check|verify|confirm|describe|compare|rank|rate|"
    r"fill|reply|answer|estimate|write|enter|find|help|let me know|remind",
    "subject": r"you|your|i|we|he|she|they|it|that|this|these|those|there|his|her|their|my|the|an?|any\w*|some\w*|either|both|<name>",
    "tells": r"telling|sharing|giving|letting|showing|checking|looking|providing",
}


def _pattern(*forms: str) -> re.Pattern[str]:
    """Returns the alternation of forms, in which `<term>` stands for any of its words."""
    joined = "|".join(forms)
    while "<" in (expanded := re.sub(r"<(\w+)>", lambda term: f"(?:{TERMS[term[1]]})", joined)) and expanded != joined:
        joined = expanded
    return re.compile(expanded)


# What may stand before the point of a clause. Bounded, since it is tried at every comma.
FILLER = _pattern(
    r"(?:(?:oh|ok|okay|hi|hello|hey|great|thanks|thank you|good|sure|so|and|but|also|then|now|well|please|sorry|yes|no|right|just|quick|questions?|next"
    r"|finally|first|second|last|or|cool|nice|perfect|understood|got it|again|hmm?|um|say|for now|by the way|one more|another|however|fine|curious"
    r"|my turn|your turn|wait|specifically|only|maybe|perhaps|on your (?:side|end)|in your table|partner|there|alternatively)\b(?: more thing| one)?[ ,:#()-]*){0,8}"
)
QUESTION = _pattern(  # how a question begins
    r"what(?:'s|'re)?(?: else| other| kind of)* (?:<aux>|about|if|<score>|papers?|reviewers?|<name>|you|your|on|for)\b|what(?:'s|s)\b|what$",
    r"how(?:'s|s)\b|how (?:<aux>|about|many|much|<good>|\w+$|\w+(?: at)? <aux>)\b",
    r"which\b(?! (?:leaves|means|makes|would|is|was|gives|i|we)\b)",
    r"who(?:m|se)?(?:'s)?\b|where(?:'s)? (?:<aux>|should|else|<name>)\b|why\b",
    r"(?:<aux>|should|shall) (?:<subject>)\b",
    r"(?:any|anything|anyone|thoughts|(?:you )?got (?:any\w*|an?|<name>))\b",
)
_IMPERATIVE = _pattern(
    r"(?:^|[,:-] |\band )(?:(?:please|kindly|just|also|now|then|go|do|feel free to|you (?:can|could)) )*(?:<tell>)\b(?=.*\b(?:me|us|your|<name>|<score>|what\w*|how|which|who|all|it|them|these|those|everything|table|column|row|blanks|any)\b)"
)
_REQUEST = _pattern(
    r"(?:can|could|would|will|may|might) (?:you|i) (?:\w+ ){0,3}?(?:<tell>|know|ask|see|hear|look|learn|have (?=.*\b(?:your|<score>)))\b",
    r"\blet (?:me|us) (?:know|have|ask|hear)\b|\b(?:i'd|would) appreciate\b|\blmk\b|\b(?:mind|willing to|able to|happy to|care to|want to|hoping you could|hope you can) (?:<tell>|<tells>)\b",
    r"(?:\b(?:i|we|i'm|i'd|we'd) (?:(?!not|never|don't)\w+ ){0,3}|^)(?:want|like|love|need|wish|hoping|hope|interested|keen|appreciate|curious|wondering)(?:ed)? (?:to|in) (?:know|knowing|hear|see|ask|learn)\b",
    r"(?:\b(?:i|we|i'm|i'd|we'd) (?:(?!not|never|don't|have)\w+ ){0,3}|^)(?:want|like|need|require|request|requesting|needed|looking for|missing|interested in|curious about|should know|asking (?:for|about)|ask (?:for|about)|grateful|glad|happy)\b(?=.*\b(?:<score>|your|yours|how|what|whether)\b)",
    r"\b(?:i'm|i am|was) (?:\w+ )?(?:curious|wondering|asking|interested in)\b|\bi (?:\w+ )?wonder\b(?! no)|^(?:wondering|curious)\b",
    r"\b(?:would|might|could|it'd|will) (?:\w+ )?(?:help|useful|helpful|nice|great|good)\b.{0,30}\b(?:know|hear|see|tell|share|check)\b",
    r"\b(?:my|one|another|a|last|next|same) (?:\w+ )?(?:questions?|requests?) (?:is|are|:|for|about|on)\b|^(?:questions?|requests?|query|needed|need|wanted|requesting|unknowns?|my unknowns?)\b(?=.*<name>)",
    r"^(?:your|the|same|any) (?:\w+ )?(?:<score>)\b(?!.*(?:\b(?:is|was|are|were|seems?)\b(?! it)|[^RP\d]\d))|^(?:scores?|values?|numbers?|ratings?|affinity)\b(?= (?:of|for|on|between|please|<name>)\b)(?!.*(?:\b(?:is|was|are)\b|[^RP\d]\d))",
    r"\bplease\b(?=.*<name>)|<name>.*\bplease$|what i need\b|i should know\b|\bis (?:all|what) i (?:need|lack|miss|want)\b|\b(?:all|what|(?:thing|score|number|one|value|pair)) (?:that )?i(?:'m)? (?:need|want|miss\w*|lack\w*)\b|^(?:next up|over to you|your turn to)\b",
)
# No question after all: what is called off, offered, said before, or a condition.
_NO_QUESTION = _pattern(
    r"\b(?:don't|do not|didn't|did not|doesn't|needn't|need not|no need|stop|never|without|won't|will not|wouldn't|not|no longer|isn't about|no point)(?: (?:need|have|want|going|you|to|in|even|me|really|be|for))* ?(?:tell\w*|ask\w*|answer\w*|shar\w+|giv\w+|say\w*|reveal\w*|bother|worry|need|needed|want|necessary|care|talk\w*|discuss\w*|consider\w*)\b",
    r"\b(?:ignor\w+|forget|disregard|never mind|nevermind|skip|leave out|drop|no need|no point|cancel|no more)\b",
    r"\b(?:was|were|been|is) answered\b|\bthanks? (?:you )?for\b|\bwas (?:going|about) to ask\b|\bi (?:will|can|could|would|'ll|may)?(?: \w+)? ?(?:tell|told|tells|share|shared|give|gave|show|showed|send) you\b|\bi(?:'ll| will| can| could)(?: \w+)? (?:tell|share|give|show|check|ask|look|report|confirm)\b",
)
_SAID = _pattern(
    r"(?:did|have|had) i\b|as (?:i|you|we) (?:\w+ )?(?:said|told|asked|mentioned|know|see)\b|(?:you|you've|i|i've|we|we've) (?:\w+ ){0,2}?(?:told|said|asked|mentioned|answered|gave)\b|to answer\b",
    r"what (?:i|we|you (?:told|said|gave)|he|she)(?:'m|'ve|'d)?(?!')\b(?! (?:need|want|like|lack|am|ask\w*|still))",
    r"what an?\b|how (?:nice|funny|great|lucky|interesting|sad|strange|unlucky|cool)\b(?! is| are)|isn't it (?:\w+ )?that\b|guess what\b|you know (?:that|what)\b",
    r"who (?:cares|needs|knows|would have|could possibly|could have|am i|i)\b",
    r"whether\b|hope\b|hopefully\b|(?:please )?(?:note|remember|recall|remind(?:er)?\b(?! me)|keep in mind|bear in mind|be aware|be advised|understand|see (?:my|below|above|that)|find (?:my|below)|consider|don't forget|mind that)\b",
)
_CONDITION = re.compile(
    r"(?:if|unless|because|since|although|though|while|whether|that|given|as long as)\b|when\b(?! (?:do|does|will|are|is)\b)"
)
_REMARK = re.compile(r"which (?:leaves|means|makes|would|is|was|gives|i|we)\b")
_PROCESS = _pattern(
    r"how (?:are|is) (?:you|things|it going)|how's it going|what's up|why(?! (?:not|don't))|are you (?:ready|done|there|still)|(?:can|could) you (?:\w+ )?(?:resend|re-send|repeat|wait|clarify|rephrase|propose|send (?:the|a|your) (?:\w+ )?(?:proposal|plan))",
    r"(?:do|would|did) you (?:want|need|like) (?:(?:me|my|mine)\b|.*\bfrom me\b|R\S+ scores? from)|who (?:cares|needs|knows)\b|want (?:me|my)\b|(?:shall|should|can|may) i (?:\w+ )?(?:<tell>|send|propose|submit|start)\b(?! (?:.* )?your?\b)|(?:did|do) you (?:notice|mean|get|receive|understand|realize|remember)\b|what (?:do|did|does) (?:you mean|.* mean$)",
    r"can you see (?:the|my|me)\b|whose turn|who (?:starts|proposes|goes)|what .*\byou need\b",
)
_OPINION = _pattern(
    r"(?:what|how) (?:do|would|did|are) (?:you|your) (?:think|say|feel|thinking|thoughts)\b(?! (?:for|on|of)\b)|what(?:'s| is| are) your (?:thoughts|opinion|view|take)\b|(?:any |your )?(?:thoughts|opinions?)\b(?! for| on [RP])",
    r"how (?:does|do|is|would|about)? ?(?:this|that|it|these|the plan|my (?:plan|proposal))(?: look| sound| seem)?$|let me know (?:what|how) you (?:think|feel)|tell me what (?:you think|changes)",
)
_CONSENT = _pattern(
    r"\b(?:agree[ds]?|agreeable|agreement|agreeing|accept\w*|approv\w+|objections?|objects?|against|deals?|fair|reasonable|acceptable|on board|bothers?|sounds?(?! like)|comfortable|settled?|welcome|disagree\w*|dis?agreements?|satisfied|count on|concerns?|complaints?|reservations?|adjustments?|change[sd]?|(?:what|how) you (?:think|feel)|your thoughts|to suggest)\b",
    r"\b(?:ok|okay|fine|cool|all right) (?:with|w|to|if|by|for|on)\b|\b(?:you|you're|are you|you be|would you be|you'd be|is it|be) (?:also )?(?:happy|good|glad) (?:with|to go|if we)\b|\blive with\b|\b(?:you|do you) (?:feel|felt|like) (?:about|better|it|this|that|the)\b",
    r"\bmind (?!telling|sharing|giving|letting|showing|checking|looking|reading|providing)|\b(?:do|would) you mind$|\bmind if\b|\bworks? (?:for|with) (?:you|us|me|both)\b|\b(?:does|do|would|will|can|could|might)\b.{0,60}\bwork(?: out)?$|\b(?:open|willing) to (?!tell|shar|giv|provid|show|send|check|look)",
    r"\b(?:ok|okay|fine|right|yes|(?<!or )no|correct|huh|eh|deal|good idea|isn't (?:it|he|she)|don't you think|wouldn't (?:it|he|she)|be wise|final)$",
    r"\bif (?:that's|it's|that is|it is|you're|you are) (?:okay|fine|good|all right)\b|\b(?:confirm|know|check|see|tell me|agreed) (?:that|if|whether) (?:we|i|you|this|that|it|there)\b(?! (?:have|has|see|know|got|is an?|'s an?)\b)",
)
_SUGGEST = _pattern(
    r"(?:should|shall) (?:we|i|<name>|he|she|they)\b|let's|let us(?! know)|lets|why (?:not|don't)\b|(?:how|what) about (?:we|i|if|just|an?|my|this|that|\w+ing)\b|what if\b|(?:can|could|may|might|do|are|will|would) (?:we|i)\b(?! (?:have|know|see|ask|get|assume|compare))",
    r"would you (?:like|consider|rather|want)\b(?! to (?:<tell>))|do you want\b(?! to (?:<tell>))|are you (?:sure|willing|set on)\b(?! to (?:<tell>))|i (?:propose|suggest|recommend)\b|maybe\b|perhaps\b|we (?:should|could|can)\b|(?:can|could|would|will) you (?:\w+ )?(?:accept|agree|take|put|move|assign|use|switch|swap|consider|keep|place|go)\b",
)
_PLAN = _pattern(
    r"\b(?:put(?:ting|s)?|assign\w*|plac(?:e|es|ed|ing)|swap\w*|switch\w*|mov(?:e|es|ed|ing)|lock\w*|go(?:es|ing)? (?:with|for|to|on)|stick\w* with|keep\w*|pick\w*|finali[sz]e\w*|propos\w+|reviews?|reviewing|takes?|taking|having|pair(?:ing)? R\S+|trad(?:e|ing)|prefer|rather|leav(?:e|ing)|giv(?:e|es|ing) (?:<name>)|reassign|plan|proposal|instead|be (?:on|placed)|(?:do|take|handle) (?:it|that|this)$)\b"
)
_VALUE_WORDS = _pattern(
    r"\b(?:<score>|scor\w+|rated?|how (?:<good>|much|many)|know|see|worth|experience|column|row|tell|<good>)\b"
)
_CHOICE = re.compile(r"(?:who|which|where|what)\b")
_OWN = re.compile(r"(?:i|i'm|i've|i'll|i'd|we|we're|we've|we'll|my)\b(?!.*\byou (?:see|have|know)\b)")
# A question about more than a cell: a whole reviewer, a whole paper, the table
WHOLE = re.compile(
    r"\b(?:who|whom|where|which (?:\w+ )?(?:reviewers?|papers?|pairs?|ones?|of|scores?|is|are)|what (?:else|papers?|reviewers?)|any(?:one|body|where)|some(?:one|body)|best|top|(?<!at )all|every\w*|others?|else|most|highest|lowest"
    r"|strongest|overall|general|whole|entire|papers|reviewers|strengths|preferences?|(?:any|other|good|better|some) (?:options?|candidates?|suggestions?|ideas)|anything (?:else|higher|above)|(?:good|strong|best) (?:at|for|on|in)$)\b"
)
_OPEN = _pattern(
    r"\b(?:<name>|<score>|<good>|who|which|where|any\w*|see|have|know|share|tell|there|yours|he|she)\b|about you$"
)
_NOUN_ASKS = _pattern(r"\b(?:<score>|please|yours?|same|next)\b")


def opened(clause: str) -> str:
    """Returns a clause from its point on, without greetings and connectives."""
    return FILLER.sub("", clause, count=1)


def requests(text: str) -> bool:
    """Returns True if a text holds a request."""
    return bool(_IMPERATIVE.search(text) or _REQUEST.search(text))


def act_of(text: str, clause: str, marked: bool) -> Act:
    """Returns what a clause does.

    Args:
        text: its words; `clause`: those after greetings and connectives.
        marked: whether a question mark closes it.
    """
    if _NO_QUESTION.search(text) or _SAID.match(clause) or _CONDITION.match(clause):
        return "none"
    if not marked and _REMARK.match(clause):
        return "none"
    request = requests(clause)
    headed = request or QUESTION.match(clause) is not None
    if _PROCESS.match(clause) and (marked or headed):
        return "process"
    if not (marked or headed):
        return "propose" if _SUGGEST.match(clause) else "none"
    if _OPINION.match(clause) or _CONSENT.search(text) or (_SUGGEST.match(clause) and not request):
        return "check"
    if _PLAN.search(text) and not (_VALUE_WORDS.search(text) and request) and not _CHOICE.match(clause):
        return "check"
    if not headed and _OWN.match(clause):
        return "check" if marked and NAME.search(clause) else "none"
    return "ask"


def kind_of(clause: str) -> str:
    """Returns the kind of a question that names no pair."""
    return "open" if _OPEN.search(clause) or WHOLE.search(clause) else "process"


def suggests(clause: str) -> bool:
    """Returns True if a clause begins as a plan: "how about we", "let's"."""
    return _SUGGEST.match(clause) is not None


def speaks_of_scores(clause: str) -> bool:
    """Returns True if a clause has a word for a score, or for knowing one."""
    return _VALUE_WORDS.search(clause) is not None


def asks_by_noun(text: str) -> bool:
    """Returns True if its nouns make names a question: "Ava on BLEU, please", "your score for Ava on BLEU"."""
    return _NOUN_ASKS.search(text) is not None and not text.startswith("thank")


def is_own(clause: str) -> bool:
    """Returns True if a clause is about its author: "I have", "my"."""
    return _OWN.match(clause) is not None
