"""Whether a clause asks, suggests or states, by its wording alone.

Patterns read masked clauses, and take time linear, or nearly so, in the length of the text, which a policy chooses.
"""

from __future__ import annotations

import re
from typing import Literal

from slim_rl.games.matching.reading.clauses import is_bare

Mood = Literal["ask", "suggest", "state"]

# Words before the point of a clause. Bounded, since it is tried at every comma.
_FILLER = (
    r"(?:(?:oh|ok|okay|hi|hello|hey|great|thanks|thank you|good|sure|so|and|but|also|then|now|well|please|sorry|yes|"
    r"no|right|"
    r"alright|actually|just|quick|question|next|finally|first|second|or|cool|nice|perfect|understood|got it|there|"
    r"again|hmm+|"
    r"noted|because|in that case|for now|by the way|btw|one more|another|partner|friend|"
    r"however)\b[\s,:;!\u2013\u2014-]*){0,6}"
)
_SILENT = re.compile(_FILLER)

_WHO = r"(?:you|your|R\d+|P\d+|there|he|she|they|it|his|her|their|the|any|anyone|anybody|anything|either|both)\b"
_REQUEST = (
    r"(?:(?:tell|inform|show|send|give|remind) (?:me|us)|let (?:me|us) know|lmk|look up)\b|"
    r"(?:(?:can|could|would|will) you|please|kindly) (?:please |kindly )?"
    r"(?:share|provide|report|reveal|state|list|disclose)\b|"
    r"(?:want|like|love|need|wish|happy|glad|have|got) to (?:know|ask|hear)\b|"
    r"(?:i (?:\w+ )?wonder|wondering|curious|i(?:'d| would)? (?:also |just )?ask|interested in)\b|"
    r"(?:i |we )?need (?:to know|your|the score|a score|R\d+(?:'s)? P\d+ score)|"
    r"(?:can|could|may|might) i (?:get|have|ask|know|see|hear)\b|"
    r"looking for (?:your|the|any|a)\b|question (?:about|on|regarding)\b|asking (?:you )?(?:about|for)\b|"
    r"check (?!mine|my|it|this|that|out)"
)
_QUESTION = (
    r"what\b(?! (?:i|we)\b)|whats\b|how\b(?! i\b)|hows\b|do (?:you|they)\b|don't you|have you|"
    rf"(?:is|are|was|does|did|can|could|would|will|has|might|isn't|doesn't) {_WHO}|"
    r"any(?:thing|one|body)?\b|(?:you )?got (?:any\w*|an?|R\d+'s)\b|(?:know|see|have) any(?:thing)?\b|"
    rf"(?:share|provide|report|list|name|compare)\b(?! (?:my|mine|our))|{_REQUEST}"
)
_STATEMENT = r"(?:i|i'm|i've|i'll|i'd|we|we're|we've|my|mine|our|ours|let's|let us)\b"

_ASKS = re.compile(
    rf"{_FILLER}(?:{_QUESTION}|(?:who|whose|whom|where|why|when)\b|"
    r"which\b(?! (?:leaves|is|was|has|means|makes|would|puts|gives|i|we)\b))"
)
_REQUESTS = re.compile(
    rf"\b(?:{_REQUEST})|"
    rf"^{_FILLER}your (?:score|value|number|rating)s?\b(?!.*\b(?:is|was|are|were|seems?|looks?)\b)"
)
_ASKS_INSIDE = re.compile(
    r"\bplease\b|\bhow (?:good|well|strong|high|bad|suitable|much|does|do|is)\b|"
    r"\bwhat (?:score|value|number|rating|do|does|is|are|about)\b|\bwh(?:ich|o) (?:one )?is (?:better|best|stronger|"
    r"higher)\b"
)
_STATES_OWN = re.compile(_FILLER + _STATEMENT)
_STATES = re.compile(rf"{_FILLER}(?:{_STATEMENT}|(?:that|this|you(?! (?:got|have any|see any|know any))|it|he|she)\b)")
_OPINES = re.compile(r"\bi (?:have|see|think|guess|believe|got|know)\b")
_REFUSES = re.compile(
    r"\b(?:don't|do not|needn't|no need to|didn't|did not|not|stop|won't|will not) "
    r"(?:need to |have to |want you to |you )?"
    r"(?:tell\w*|answer\w*|shar\w+|giv\w+|send\w*|say\w*|reveal\w*|ask\w*|bother|worry)\b|"
    r"\bnever ?mind\b|\bforget\b|\bi (?:will|can|could|should|shall) (?:tell|ask|show|share|check)"
)
_CONSENT = re.compile(
    r"\b(?:agree[ds]?|accept(?:able)?|approve|objections?|deal|sounds?|on board|why|reason|"
    r"(?:ok|okay|fine|happy|good|cool|all right|alright) with|(?:ok|okay|fine) (?:if|to)|"
    r"works? (?:for|with) (?:you|me|us|your))\b|"
    r"\b(?:would|does|will|can|could|might|should)\b.{0,60}\bwork\W{0,4}$|"
    r"\b(?:ok|okay|fine|right|yes|(?<!or )no|correct|good idea|huh|eh|isn't (?:it|he|she)|don't you think)\W{0,4}$"
)
_SUGGESTS = re.compile(
    rf"{_FILLER}(?:should (?:we|i)|shall (?:we|i)|let's|let us(?! know)|lets|why not|why don't|(?:how|"
    rf"what) about (?:we|i)|"
    r"what if|(?:can|could|may) (?:we|i)|do you (?:want|mind|like)|would you (?:like|mind)|"
    r"are you (?:ok|okay|fine|happy|sure|willing)|i (?:propose|suggest|recommend)|maybe|perhaps|we (?:should|could|"
    r"can))\b"
)
_PLANS = re.compile(r"\b(?:maybe|perhaps|let's|we (?:should|could|can|may)|should we)\b")
_ASSIGNS = re.compile(
    r"\b(?:put(?:ting)?|assign\w*|plac(?:e|es|ing)|allocat\w+|swap\w*|switch\w*|mov(?:e|es|ing)|lock\w*|go(?:es|"
    r"ing)? with|"
    r"stick with|keep|choose|pick|settle|finali[sz]e|propos\w+|reviews?|reviewing|(?<!your )takes?|having|"
    r"(?:match|pair|give|giving|use|using) R\d+)\b"
)
_VALUES = re.compile(
    r"\b(?:scor\w+|values?|ratings?|rated?|numbers?|points?|how (?:good|well|strong|high|much|bad|suitable)|better|"
    r"best|"
    r"strong\w*|suit\w*|fits?|qualified|info\w*|data|know|see)\b"
)
_WH = re.compile(rf"{_FILLER}(?:who|which|where|what(?! about))\b")


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


_CUT = re.compile(
    r"(?:[,;:()\u2013\u2014]|\s-+\s|\b(?:and|but|so|then|or|because|since|though|while|also|otherwise)\b)\s*"
    rf"(?={_FILLER}(?:{_QUESTION}|which (?:reviewer|paper|one)|who (?:do|does|would|should|has)\b|{_STATEMENT}|"
    rf"you\W*$))"
)


def parts(sentence: str) -> list[str]:
    """Cuts a sentence where a new question or statement begins. "For R0 on P0, what do you have" stays whole."""
    cuts = [match.end() for match in _CUT.finditer(sentence)]
    out: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        part = sentence[start:end].strip(" ,;:")
        if out and is_bare(out[-1]) and not _STATES.match(part):
            out[-1] += f", {part}"
        elif not _SILENT.fullmatch(part):
            out.append(part)
    return out


_SCORE = r"(?:scores?|values?|numbers?)"
_THAT = (
    r"(?:it|that|this|them|these|those|(?:this|that|these|those|the same) (?:pair|one|cell|combination|assignment)s?)"
)
_IT = (
    rf"(?: (?:{_THAT}|one|any|anything|something|(?:a|the) {_SCORE}|too|there|here|as well|"
    rf"(?:for|on|of|about|in) (?:{_THAT}|your (?:side|end|table))))*"
)
_ECHO = re.compile(
    rf"{_FILLER}(?:(?:(?:what|how) about )?(?:you|yours|your (?:side|table|end|{_SCORE}))|"
    rf"(?:what )?(?:do|can|don't) you(?: (?:have|see|know|get|say|show))?{_IT}|have you(?: got)?{_IT}|"
    rf"what(?: score| value|'s|s| is| are)?(?: do you (?:have|see))?(?: yours| your {_SCORE})?{_IT}|"
    rf"any (?:idea|info|information|clue|{_SCORE}){_IT}|can you help|same for you|"
    rf"(?:can|could|would) you (?:please )?(?:tell me|share|give me) (?:yours|your {_SCORE}){_IT})"
)
_NO_ECHO = re.compile(rf"{_FILLER}what(?: do you (?:have|see|know|say))?")
_POINTS_BACK = re.compile(r"\b(?:them|these|those|there|that|this|it)\b")
_SEVERAL = re.compile(r"\b(?:are|scores|values|numbers)\b")


def echoes(text: str, pairs_before: int) -> bool:
    """Whether a clause that names nobody asks about what was named just before: "and you?", "do you have that?".

    With several pairs before it, only if it points at them: after a whole table, "and you?" is a general question.
    """
    if not _ECHO.fullmatch(text) or _NO_ECHO.fullmatch(text):
        return False
    return bool(_POINTS_BACK.search(text)) or (pairs_before == 1 and not _SEVERAL.search(text))
