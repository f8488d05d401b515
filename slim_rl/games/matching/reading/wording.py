"""Whether a clause asks, suggests or states, by its wording alone.

Patterns read masked clauses, and take time linear, or nearly so, in the length of the text, which a policy chooses.
"""

from __future__ import annotations

import re
from typing import Literal

from slim_rl.games.matching.reading.clauses import is_bare
from slim_rl.games.matching.reading.masking import NAME
from slim_rl.games.matching.reading.pairing import by_side
from slim_rl.games.matching.reading.patterns import Vocabulary, pattern

Mood = Literal["ask", "suggest", "state"]

# <filler> are the words before the point of a clause. Bounded, since it is tried at every comma.
_WORDS = Vocabulary(r"""
<filler>    (?:(?:oh|ok|okay|hi|hello|hey|great|thanks|thank you|good|sure|so|and|but|also|then|now|well|please|sorry|yes
            no|right|alright|actually|just|quick|question|next|finally|first|second|or|cool|nice|perfect|understood
            got it|there|again|hmm+|noted|because|in that case|for now|by the way|btw|one more|another|partner|friend
            however)\b[\s,:;!\u2013\u2014-]*){0,6}
<who>       (?:you|your|R\d+|P\d+|there|he|she|they|it|his|her|their|the|any|anyone|anybody|anything|either|both)\b
<request>   (?:(?:tell|inform|show|send|give|remind) (?:me|us)|let (?:me|us) know|lmk|look up)\b
            (?:(?:can|could|would|will) you|please|kindly) (?:please |kindly )?(?:share|provide|report|reveal|state|list
            disclose)\b|(?<!might )(?<!may )(?:want|like|love|need|wish|have|got|(?<!will )be (?:happy|glad)) to (?:know|ask|hear)\b
            (?:i (?:\w+ )?wonder|wondering|curious|i(?:'d| would)? (?:also |just )?ask|interested in)\b
            (?:i |we )?need (?:to know|your|the score|a score|R\d+(?:'s)? P\d+ score|R\d+'s <score>)
            mind (?:telling|sharing|giving|letting|showing|checking|looking)\b
            (?:(?:would|i'd) (?:(?!you\b)\w+ )?(?:appreciate|like|love|be grateful for)|requesting|i (?:\w+ )?request) (?:knowing\b
            (?:your|the|an?|R\d+'s) <score>)
            (?:would|might|could) (?:help|be (?:helpful|useful|good|nice|great)) to (?:know|hear|see)\b
            (?:if|hope|hoping) you (?:could |would |can |might )?(?:shared?|(?:told|tell|gave|give|showed|show|let) (?:me|us))\b
            (?<!i )(?<!we )confirm (?:(?:your|the|R\d+'s) <score>)
            (?:can|could|may|might) i (?:get|have|ask|know|see|hear)\b|looking for (?:your|R\d+'s|(?:the|any|a) <score>)
            (?<!answered my )(?<!your )question (?:about|on|regarding)\b(?!.*\banswered\b)|asking (?:you )?(?:about|for)\b
            (?:let me ask (?:you )?|same question )(?:about|for)\b
            (?<!let me )(?<!i'll )check (?!mine|my|it|this|that|out)
<question>  what\b(?! (?:i|we)\b)|whats\b|how\b(?! i\b| (?:nice|good|great) that\b)|hows\b|do (?:you|they)\b|don't you|have you
            (?:is|are|was|does|did|can|could|would|will|has|might|isn't|doesn't) <who>|any(?:thing|one|body)?\b
            (?:you )?got (?:any\w*|an?|R\d+'s)\b|(?:know|see|have) any(?:thing)?\b
            (?:share|provide|report|list|name|compare)\b(?! (?:my|mine|our))|rate R\d+\b|<request>
<statement> (?:i|i'm|i've|i'll|i'd|we|we're|we've|my|mine|our|ours|let's|let us)\b
<score>     (?:scores?|values?|numbers?|ratings?)
<one>       (?:score|value|number|rating|affinity)
<whois>     who(?:'s| (?:do|does|would|should|has|is|are|can|could|else|scores?))\b|where (?:is|are|do|does|would)\b
<that>      (?:it|that|this|them|these|those|(?:this|that|these|those|the same) (?:pair|one|cell|combination|assignment)s?)
<it>        (?: (?:<that>|one|any|anything|something|(?:a|the) <score>|too|there|here|as well
            (?:for|on|of|about|in) (?:<that>|your (?:side|end|table))))*
""")
_SILENT = _WORDS.pattern("<filler>")

_ASKS = _WORDS.pattern(r"""<filler>(?:<question>|(?:who|whose|whom|where|why|when)\b|which\b(?! (?:leaves|is|was|has|means
    makes|would|puts|gives|i|we)\b))""")
_REQUESTS = _WORDS.pattern(r"""\b(?:<request>)
    ^<filler>your (?:score|value|number|rating)s?\b(?!.*\b(?:is|was|are|were|seems?|looks?)\b)
    ^<filler>(?:the )?<one> (?:for|of|on|between)\b(?!.*(?:\b(?:is|was|are|were|seems?|looks?|gets?)\b|[^RP\d]\d))""")
_ASKS_INSIDE = pattern(r"""\bplease\b(?! (?:note|remember|recall|(?:be|stay) (?:aware|advised)|(?:keep|bear) in mind|consider|know
    understand|find|see (?:my|below|that))\b)|\bhow (?:good|well|strong|high|bad|suitable|much|does|do|is)\b
    \bwhat (?:score|value|number|rating|do|does|is|are|about)\b
    \bwh(?:ich|o) (?:one )?is (?:better|best|stronger|higher)\b""")
_STATES_OWN = _WORDS.pattern("<filler><statement>")
_STATES = _WORDS.pattern(r"<filler>(?:<statement>|(?:that|this|you(?! (?:got|have any|see any|know any))|it|he|she)\b)")
_OPINES = re.compile(r"\bi (?:have|see|think|guess|believe|got|know)\b")
_REFUSES = pattern(r"""\b(?:don't|do not|needn't|no need to|didn't|did not|not|stop|won't
    will not) (?:need to |have to |want you to |you )?(?:tell\w*|answer\w*|shar\w+|giv\w+|send\w*|say\w*|reveal\w*
    ask\w*|bother|worry)\b|\bnever ?mind\b|\bforget\b|\bi (?:will|can|could|should|shall) (?:tell|ask|show|share|check)""")
_CONSENT = pattern(r"""\b(?:agree[ds]?|accept(?:able)?|approve|objections?|deal|sounds?|on board|why|reason|(?:ok|okay
    fine|happy|good|cool|all right|alright) with|(?:ok|okay|fine) (?:if|to)|works? (?:for|with) (?:you|me|us|your))\b
    \b(?:would|does|will|can|could|might|should)\b.{0,60}\bwork\W{0,4}$
    \b(?:ok|okay|fine|right|yes|(?<!or )no|correct|good idea|huh|eh|isn't (?:it|he|she)|don't you think)\W{0,4}$""")
_SUGGESTS = _WORDS.pattern(r"""<filler>(?:should (?:we|i)|shall (?:we|i)|let's|let us(?! know)|lets|why not|why don't
    (?:how|what) about (?:we|i)|what if|(?:can|could|may) (?:we|i)|do you (?:want|mind|like)|would you (?:like|mind)
    are you (?:ok|okay|fine|happy|sure|willing)|i (?:propose|suggest|recommend)|maybe|perhaps
    we (?:should|could|can))\b""")
_PLANS = re.compile(r"\b(?:maybe|perhaps|let's|we (?:should|could|can|may)|should we)\b")
_ASSIGNS = pattern(r"""\b(?:put(?:ting)?|assign\w*|plac(?:e|es|ing)|allocat\w+|swap\w*|switch\w*|mov(?:e|es|ing)|lock\w*
    go(?:es|ing)? with|stick with|keep|choose|pick|settle|finali[sz]e|propos\w+|reviews?|reviewing|(?<!your )takes?
    having|(?:match|pair|give|giving|use|using) R\d+|(?:give|giving) P\d+ to R\d+)\b""")
_VALUES = pattern(r"""\b(?:scor\w+|values?|ratings?|rated?|numbers?|points?|how (?:good|well|strong|high|much|bad
    suitable)|better|best|strong\w*|suit\w*|fits?|qualified|info\w*|data|know|see)\b""")
_WH = _WORDS.pattern(r"<filler>(?:who|which|where|what(?! about))\b")


def mood(text: str, marked: bool) -> Mood:
    """What a clause does. `marked`: a question mark closes it.

    Consent and assigning come before asking: "should we put R0 on P0?" wants no score.
    """
    if _REFUSES.search(text):
        return "state"
    requests = _REQUESTS.search(text) is not None
    if _CONSENT.search(text) or (_SUGGESTS.match(text) and not requests):
        return "suggest" if marked or _SUGGESTS.match(text) or _ASKS.match(text) else "state"
    if _ASSIGNS.search(text) and not _WH.match(text) and (_PLANS.search(text) or not _VALUES.search(text)):
        return "suggest"
    if requests:
        return "ask"
    if _STATES.match(text):
        return "ask" if marked and not _STATES_OWN.match(text) else "state"
    if _ASKS.match(text) or _ASKS_INSIDE.search(text):
        return "ask"
    return "ask" if marked and not _OPINES.search(text) else "state"


_CUT = _WORDS.pattern(r"""(?:[,;:()\u2013\u2014]|\s-+\s|\b(?:and|but|so|then|or|because|since|though|while|also
    otherwise)\b)\s*(?=<filler>(?:<question>|which (?:reviewer|paper|one)|<whois>|<statement>
    you\W*$))""")
_WHO_IS = _WORDS.pattern("<filler>(?:<whois>)")


def parts(sentence: str) -> list[str]:
    """Cuts a sentence where a new question or statement begins. "For R0 on P0, what do you have" stays whole, and so does "between R0
    and R1, who is better on P0"; "R0 on P0, who is left for P1" does not.
    """
    cuts = [match.end() for match in _CUT.finditer(sentence)]
    out: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        part = sentence[start:end].strip(" ,;:")
        if out and _continues(out[-1], part):
            out[-1] += f", {part}"
        elif not _SILENT.fullmatch(part):
            out.append(part)
    return out


def _continues(before: str, part: str) -> bool:
    """Whether a part asks about what stands before it, and names only that."""
    another = _WHO_IS.match(part) is not None and NAME.search(part) is not None and all(by_side(before))
    return is_bare(before.removeprefix("between ")) and not another and not _STATES.match(part)


_ECHO = _WORDS.pattern(r"""<filler>(?:(?:(?:what|how) about )?(?:you|yours|your (?:side|table|end|<score>))
    (?:what )?(?:do|can|don't) you(?: (?:have|see|know|get|say|show))?<it>|have you(?: got)?<it>
    what(?: score| value|'s|s| is| are)?(?: do you (?:have|see))?(?: yours| your <score>)?<it>
    any (?:idea|info|information|clue|<score>)<it>|can you help|same for you
    (?:can|could|would) you (?:please )?(?:tell me|share|give me|provide|look up) (?:yours|(?:your|the) <score>|it
            (?:that|this)(?: <score>)?)<it>)""")
_NO_ECHO = _WORDS.pattern("<filler>what(?: do you (?:have|see|know|say))?")
_POINTS_BACK = re.compile(r"\b(?:them|these|those|there|that|this|it)\b")
_SEVERAL = re.compile(r"\b(?:are|scores|values|numbers)\b")


def echoes(text: str, pairs_before: int) -> bool:
    """Whether a clause that names nobody asks about what was named just before: "and you?", "do you have that?".

    With several pairs before it, only if it points at them: after a whole table, "and you?" is a general question.
    """
    if not _ECHO.fullmatch(text) or _NO_ECHO.fullmatch(text):
        return False
    return bool(_POINTS_BACK.search(text)) or (pairs_before == 1 and not _SEVERAL.search(text))
