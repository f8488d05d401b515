"""First notion of the reader: what a clause does, by its wording alone.

Invariants:
    A clause asks only if it is a question or a request; consent, plans, offers, exclamations and statements ask for no score.
    Patterns read words with single spaces and names as tokens. They take time linear, or nearly so, in the length of the text.
"""

from __future__ import annotations

import re
from typing import Literal

from slim_rl.games.matching.reading.clauses import is_bare, words
from slim_rl.games.matching.reading.masking import NAME
from slim_rl.games.matching.reading.pairing import by_side

# The kinds of question, and how a page names each. `act_of` says which one a clause is.
KINDS = {"pair": "about a pair", "open": "open", "check": "asking for agreement", "process": "about the game"}
INFORMATION_SEEKING = frozenset({"pair", "open"})

# ask: seeks information. name: a question that only names a pair ("Ava on BLEU?"), which the guide calls a suggestion and a partner answers.
# opinion: asks what the partner thinks. suggest: asks for consent. propose: proposes without a question. process: another question. none: a statement.
Act = Literal["ask", "name", "opinion", "suggest", "propose", "process", "none"]

_TERMS: dict[str, str] = {}


def _pattern(text: str, name: str = "") -> re.Pattern[str]:
    """Returns the alternation of the lines of `text`; `<term>` stands for that term's pattern, `name` names the group."""
    joined = "|".join(line.strip() for line in text.strip().splitlines())
    for term, pattern in _TERMS.items():
        joined = joined.replace(f"<{term}>", f"(?:{pattern})")
    if name:
        _TERMS[name] = joined
    return re.compile(joined)


_pattern(r"R[\d_]+|P[\d_]+", "name")
_pattern(
    r"""scores?|values?|numbers?|figures?|ratings?|points?|cells?|entry|entries|data|information|insights?|evaluations?
    compatibility|affinity|match|fit|knowledge|ideas?|clues?|greens?|squares?|preferences?|table|board|row|column""",
    "score",
)
_pattern(r"scores?|values?|numbers?|figures?|ratings?|affinity|compatibility|evaluation", "measure")
_pattern(
    r"""good|great|bad|well|strong\w*|weak\w*|high\w*|low\w*|better|best|worse|worst|decent|solid|suit\w*|capable|qualified|skilled
    competent|expert\w*|experienced?|familiar|fits?|poor|excellent|terrible|green|dark|light|red|known|unknown|blank|visible|above|below""",
    "good",
)
_pattern(
    r"""tell|share|give(?! up)|send|show|provide|report|list|state|reveal|disclose|indicate|supply|name|read out|read me|look up|check|verify
    confirm|describe|compare|rank|rate|remind|fill|complete|inform|reply|respond|answer|return|quote|mention|write|enter|insert|estimate|evaluate|assess|judge|find|pull up|bring up|elaborate|clarify|help (?:me|us)""",
    "tell",
)
_pattern(
    r"you|your|i|we|he|she|they|it|that|this|these|those|there|his|her|their|my|the|an?|any\w*|some\w*|every\w*|either|both|one|<name>",
    "subject",
)
_pattern(
    r"""is|are|was|were|do|does|did|has|have|had|can|could|would|will|might|may|am|isn't|aren't|wasn't|don't|doesn't|didn't|hasn't|haven't
    can't|couldn't|wouldn't|won't""",
    "aux",
)
# What may stand before the point of a clause. Bounded, since it is tried at every comma.
FILLER = _pattern(
    r"""(?:(?:oh|ok|okay|hi|hiya|hello|hey|yo|dear|great|thanks|thank you|ty|good|sure|so|and|but|also|then|now|well|please|pls|sorry|yes|no|right|actually
    just|quick|one quick|question|questions|next|finally|first|second|last|or|cool|nice|perfect|excellent|understood|got it|there|again|hmm+|hm+|um|uh
    ah|wow|noted|say|all right|in that case|for now|by the way|btw|one more|another|partner|friend|team|however|fine|fair enough|honestly|curious|let me ask|my turn
    your turn|morning|afternoon|wait|ahh?|alternatively|specifically|only|maybe|perhaps|on your side|on your end|in your table|out of curiosity)\b
    (?: more thing| one)?[ ,:#()-]*){0,8}""".replace("\n    (?: more", "(?: more")
)


def opened(clause: str) -> str:
    """Returns a clause from its point on, without greetings and connectives."""
    return FILLER.sub("", clause, count=1)


_WH = _pattern(
    r"""what(?:'s|'re|'d)?(?: else| other| kind of| all)* (?:<aux>|about|if|<score>|papers?|reviewers?|kind|sort|shade|colou?r|<name>|you|your|of|on|in|for|then)\b
    what's\b|what$|whats\b
    how(?:'s|'d|'re)\b|how (?:<aux>|about|many|much|far|come)\b|how (?:<good>|\w+)(?: at)? (?:<aux>)\b|how (?:<good>|\w+)$|how (?:<good>) (?:at|for|on)\b
    hows\b|which (?:one|ones|of|<score>|papers?|reviewers?|person|people|do|does|are|would|has the|(?:<name>))\b|which$
    who(?:m|se)?(?:'s|'d|'ll)?\b|where(?:'s)? (?:<aux>|should|else|<name>)\b|where(?:'s)?$|when\b(?= (?:do|does|will|are|is)\b)|why\b""",
    "wh",
)
_INVERTED = _pattern(
    r"""(?:<aux>|should|shall) (?:<subject>)\b
    (?:any|anything|anyone|anybody|thoughts|(?:you )?got (?:any\w*|an?|<name>)|does anyone)\b""",
    "inverted",
)
_IMPERATIVE = _pattern(
    r"""(?:(?:please|kindly|just|also|now|then|go|do|and|maybe|perhaps|feel free to|be so kind as to|how about you|you) )*(?:you (?:could|can|might|may|would) )?(?:<tell>)\b(?=.*\b(?:me|us|your|<name>|<score>|what\w*|how|which|who|following|about|everything|all|it|them|these|those|three|two)\b)
    lmk\b|let (?:me|us) (?:know|have|hear|see|ask|get)\b""",
    "imperative",
)
_IMPERATIVES = re.compile(rf"(?:^|[,:-] |\band )(?:{_IMPERATIVE.pattern})")
_REQUEST = _pattern(
    r"""(?:can|could|would|will|may|might) (?:you|i)(?: (?!have|give|accept)\w+)? (?:also |just |now |then |please |kindly |possibly |maybe |even |either |have a )*(?:be able to |be willing to |be so kind as to )?(?:<tell>|(?:have|get) (?=.*\b(?:your|<score>))|know|ask|see|hear|help|look|learn|find out)\b
    please (?:\w+ )?(?:<tell>)\b|(?:mind|willing to|able to|happy to|care to|want to|hoping you could|hope you can) (?:<tell>|telling|sharing|giving|letting|showing|checking|looking|reading|providing)\b
    let (?:me|us) (?:know|have|ask|get)\b|lmk\b
    (?:\b(?:i|we|i'm|i'd|i've|we'd|we're)\b(?: (?!not|never|don't)\w+){0,3} |^)(?:want|like|love|need|wish|have|got|hoping|hope|interested|keen)(?:ed|s)? (?:to|in) (?:know|hear|hearing|see|seeing|ask|learn|learning|knowing)\b
    (?:\b(?:i'd|we'd)|\b(?:i|we|would) would) (?:\w+ )?(?:appreciate|be (?:happy|glad|grateful|curious|interested))\b
    (?:\b(?:i|we|i'm|i'd|i've|we'd|we're)\b(?: (?!not|never|don't|have)\w+){0,2} |^(?=need|want|requ|miss|look|ask))(?:want|like|love|need|require|lack|request|requesting|needed|looking for|missing|interested in|curious about|ask(?:ing)? (?:you )?(?:for|about))\b(?=.*\b(?:<score>|your|yours|how|what|whether)\b)
    \b(?:i'm|i am|was) (?:\w+ )?(?:curious|wondering|asking|interested in|missing)\b|\bi (?:\w+ )?wonder(?! no\b)|^wondering\b|^curious\b
    (?:all|what|the (?:\w+ ){0,2}(?:thing|cell|score|number|one|value|pair)) (?:that )?(?:i|i'm|i am|i'd|we)(?: \w+)? (?:need|want|miss\w*|lack\w*|like|curious|ask\w*)\b
    \b(?:would|might|could|it'd|will) (?:\w+ )?(?:help|useful|helpful|nice|great|good|lovely)\b.{0,30}\b(?:know|hear|see|tell|share|check|look)\b
    \b(?:meant|mean|rather) (?:to )?(?:\w+ )?(?:ask|know)\b|\b(?:can|could|shall|let's|let us) (?:we )?compare\b|(?:why don't you|(?:how|what) about) (?:<tell>|telling|sharing|giving|checking)\b
    \bpossible (?:for you )?to (?:<tell>|get|have|know|see|hear)\b|\bput (?:a|your) (?:<measure>)\b|\b(?:i|we)(?: still)? need(?: to know)? :|<score> (?:needed|wanted|requested)\b
    \bif you (?:could |would |can |might |be so kind (?:as )?to )+(?:<tell>|let me)\b|i should know\b
    \b(?:my|one|another|a|last|next|same|two|three) (?:\w+ )?(?:questions?|requests?) (?:is|are|:|for|about|on|regarding)\b|^(?:questions?|requests?|query|needed|need|wanted|requesting|score check)\b(?=.*<name>)
    ^your (?:<score>)\b|^(?:the )?(?:same|<measure>)\b(?= (?:of|for|on|between|question|at|in|thing|with|there|here|please|then|as|is it|<name>)\b)(?!.*(?:\b(?:is|was|are|were|seems?|looks?|gets?)\b(?! it)|[^RP\d]\d))
    (?:<measure>) would (?:settle|help|decide|do|be)\b|\bis (?:all|what) i (?:need|lack|miss|want)\b|^(?:still )?waiting for\b|\byou (?:forgot|didn't (?:answer|tell)|haven't (?:answered|told))\b|^(?:next up|on to|over to you|hit me with|spill)\b|\bquestion mark\b
    \bplease\b(?=.*<name>)|<name>.*\bplease$|what i need\b|need(?:ed)? from you\b|your turn to (?:<tell>)\b""",
)
# A request has one of these words: most clauses need not be searched for its many forms.
_REQUESTING = frozenset(
    f"""
    can could would will may might please mind willing able happy care want wanted let lmk know hear hearing see seeing ask asking learn like love need needed
    needs require requires lack request requests requesting requested looking missing curious wondering wonder glad interested keen hoping hope help
    helpful useful nice great good lovely i'd we'd should question questions query same waiting forgot didn't haven't next over hit spill
    your you meant mean rather compare possible put settle decide all what on scores score value values number numbers figure figures rating
    ratings affinity compatibility evaluation information data cells cell wanted {" ".join(_TERMS["tell"].split("|"))}
    """.split()
)
# No request after all: what is called off, offered, or said before.
_CANCELS = _pattern(
    r"""\b(?:don't|do not|didn't|did not|doesn't|needn't|need not|no need|stop|never|without|won't|will not|wouldn't|not|no longer|isn't about|no point)(?: (?:need|have|want|going|you|to|in|even|me|really|be|for))* ?(?:tell\w*|ask\w*|answer\w*|shar\w+|giv\w+|say\w*|reveal\w*|bother|worry|need|needed|want|necessary|care|talk\w*|discuss\w*|consider\w*)\b
    \b(?:ignor\w+|forget|disregard|never mind|nevermind|skip|leave out|drop|no need|no point|cancel|no more)\b
    \b(?:was|were|been|is) answered\b|\bthanks? (?:you )?for\b|\bwas (?:going|about) to ask\b|\bi (?:will|can|could|would|'ll|may)?(?: \w+)? ?(?:tell|told|tells|share|shared|give|gave|show|showed|send) you\b|\bi(?:'ll| will| can| could)(?: \w+)? (?:tell|share|give|show|check|ask|look|report|confirm)\b"""
)
_SAID = _pattern(
    r"""(?:did|have|had) i\b|as (?:i|you|we) (?:\w+ )?(?:said|told|asked|mentioned|know|see)\b|(?:you|you've|i|i've|we|we've) (?:\w+ ){0,2}?(?:told|said|asked|mentioned|answered|gave)\b|to answer\b
    what (?:i|we|you (?:told|said|gave)|he|she)(?:'m|'ve|'d)?(?!')\b(?! (?:need|want|like|lack|am|ask\w*|still))
    what an?\b|how (?:nice|funny|great|lucky|interesting|sad|strange|unlucky|cool)\b(?! is| are)|isn't it (?:\w+ )?that\b|guess what\b|you know (?:that|what)\b
    who (?:cares|needs|knows|would have|could possibly|could have|am i|i)\b
    whether\b|hope\b|hopefully\b|(?:please )?(?:note|remember|recall|remind(?:er)?\b(?! me)|keep in mind|bear in mind|be aware|be advised|understand|see (?:my|below|above|that)|find (?:my|below)|consider|don't forget|mind that)\b"""
)
_OFFERS = _pattern(
    r"""(?:do|would|did) you (?:want|need|like) (?:me|my|mine|to (?:know|hear|see|have) (?:my|mine|what i|how i)|R\S+ .*\bfrom me|.*\bfrom (?:me|my)\b)\b|want (?:me|my)\b|(?:want|like|care) to (?:know|hear|see) (?:my|mine)\b|(?:shall|should|can|could|may) i (?:<tell>)(?! (?:.* )?(?:your|you)\b)
    what (?:do|would|else|else do) you (?:need|want|like)(?: me)? to (?:know|hear)\b|what .*\byou need\b
    (?:did|do) you (?:notice|know that|realize|see that|hear that|remember that|get|receive|mean|understand|miss|want to (?:play|work|help))\b
    (?:which|what|how many) (?:<score> )?(?:of )?(?:my|mine)\b(?! .*\byour)"""
)
_CONSENT = _pattern(
    r"""\b(?:agree[ds]?|agreeable|agreement|agreeing|accept\w*|approv\w+|objections?|objects?|against|deals?|fair|reasonable|acceptable|on board|bothers?|sounds?(?! like)|comfortable|settled?|welcome|disagree\w*|dis?agreements?|satisfied|count on|concerns?|complaints?|reservations?|adjustments?|change[sd]?|(?:what|how) you (?:think|feel)|your thoughts|to suggest)\b
    \b(?:ok|okay|fine|cool|all right) (?:with|w|to|if|by|for|on)\b|\b(?:you|you're|are you|you be|would you be|you'd be|is it|be) (?:also )?(?:happy|good|glad) (?:with|to go|if we)\b|\blive with\b|\b(?:you|do you) (?:feel|felt|like) (?:about|better|it|this|that|the)\b
    \bmind (?!telling|sharing|giving|letting|showing|checking|looking|reading|providing)|\b(?:do|would) you mind$|\bmind if\b|\bworks? (?:for|with) (?:you|us|me|both)\b|\b(?:does|do|would|will|can|could|might)\b.{0,60}\bwork(?: out)?$|\b(?:open|willing) to (?!tell|shar|giv|provid|show|send|check|look)
    \b(?:ok|okay|fine|right|yes|(?<!or )no|correct|huh|eh|deal|good idea|isn't (?:it|he|she)|don't you think|wouldn't (?:it|he|she)|be wise|final)$
    \bif (?:that's|it's|that is|it is|you're|you are) (?:okay|fine|good|all right)\b|\b(?:confirm|know|check|see|tell me|agreed) (?:that|if|whether) (?:we|i|you|this|that|it|there)\b(?! (?:have|has|see|know|got|is an?|'s an?)\b)"""
)
_OPINION = _pattern(
    r"""(?:what|how) (?:do|would|did|are) (?:you|your) (?:think|say|feel|thinking|thoughts|opinions?|views?)\b(?! (?:for|on)\b| (?:R\d+|he|she|they) (?:is|are|has|would|can|could|scores?)\b)|what (?:are|is) your? (?:thoughts|opinions?|views?|take|call|verdict)\b
    what(?:'s| is) your (?:thoughts|opinion|view|take|call|verdict)\b|(?:any |your )?(?:thoughts|opinions?)\b(?! for| on [RP])|how (?:does|do|is|would|will|did|'s)? ?(?:this|that|it|these|those|the plan|my (?:plan|proposal))(?: look| sound| seem)?(?: now| then| to you)?$"""
)
_SUGGESTS = _pattern(
    r"""(?:should|shall) (?:we|i|<name>|he|she|they)\b|let's|let us(?! know)|lets|why (?:not|don't)\b|(?:how|what) about (?:we|i|if|just|an?|my|our|this|that|\w+ing)\b|what if\b|(?:can|could|may|might|do|are|will|would) (?:we|i)\b(?! (?:have|know|see|ask|get|right|expect|assume|compare))
    would you (?:like|consider|rather|want)\b(?! to (?:<tell>))|do you (?:want|mind|like|insist)\b(?! to (?:<tell>))|are you (?:sure|willing|okay|fine|happy|set on)\b(?! to (?:<tell>))|i (?:propose|suggest|recommend|vote|move)\b|i(?:'d| would)? (?:think|say|guess) (?:we|R\S+ (?:should|would|could))\b|maybe\b|perhaps\b|we (?:should|could|can|might)\b|would it (?:be|make|help)\b|is (?:there an?|this|that|it) (?:chance|way|possibility|plan|final|settled)\b
    (?:can|could|would|will) you (?:\w+ )?(?:accept|agree|approve|take|put|move|assign|use|switch|swap|consider|keep|place|let|give up|go|do|propose|live|spare|reassign)\b""",
)
_PLANS = _pattern(
    r"""\b(?:put(?:ting|s)?|assign\w*|plac(?:e|es|ed|ing)|allocat\w+|swap\w*|switch\w*|mov(?:e|es|ed|ing)|lock\w*|go(?:es|ing)? (?:with|for|to|on)|stick\w* with|keep\w*|choos\w+|pick\w*|finali[sz]e\w*|propos\w+|reviews?|reviewing|takes?|taking|having|pair(?:ing)? R\S+|match R\S+|us(?:e|ing) R\S+|trad(?:e|ing)|exchang\w+|mak(?:e|es) sense|prefer|rather|leav(?:e|ing)|writ\w+ down|giv(?:e|es|ing) (?:<name>)|(?:reassign|plan|proposal|assignment|instead)|be (?:on|placed))\b"""
)
_MAYBE = re.compile(r"\b(?:maybe|perhaps|let's|we (?:should|could|can|may))\b")
_VALUES = _pattern(
    r"""\b(?:scor\w+|values?|ratings?|rated?|numbers?|points?|figures?|rank\w*|how (?:<good>|much|many)|know|see|data|information|bring|worth|according|experience|cells?|entr(?:y|ies)|column|row|tell|better|higher|stronger|good at|strong)\b"""
)
_OWN = _pattern(
    r"""(?:i|i'm|i've|i'll|i'd|we|we're|we've|we'll|my|mine|our|ours|let's|let us|me|that's|here's|here (?:is|are)|it's|he's|she's|they're|there's|that|this|it|he|she|they|there (?:is|are)|nobody|no one)\b"""
)
_READY = _pattern(
    r"""(?:how (?:are|is) (?:you|things|everything|it going|life)|how's (?:it going|everything|life|your)|what's up|are you (?:ready|done|there|still|new|human|going|planning|trying|a )|(?:can|could|would|will) you (?:\w+ )?(?:re-?send|repeat|wait|clarify|explain|rephrase|propose|make|send (?:me |over )?(?:an?|the|your|another) (?:\w+ )?(?:proposal|plan|offer)|start)
    what's (?:wrong|the (?:problem|matter|issue))|what (?:do|did|does) (?:you mean|.* mean$)|by .* you mean|is it my turn|whose turn|who (?:goes|starts|proposes)|shall we start|(?:should|shall|do you want me to|can) (?:i |we )?(?:send|propose|submit|resend|make)\b|can you see (?:the (?:same|scores|chat|table|proposal)|my|me|it too)|(?:is there )?(?:any|a) (?:\w+ )?reason|why(?! (?:not|don't))|(?:which|what) .*(?:do|did|are) you (?:mean|talking|referring))\b"""
)
SUBORDINATE = re.compile(  # a condition or a reason
    r"(?:if|unless|because|since|although|though|while|whether|whenever|that|given|as long as)\b|when\b(?! (?:do|does|will|are|is)\b)"
)
_RELATIVE = re.compile(
    rf"{SUBORDINATE.pattern}|which (?:leaves|means|was|makes|would|puts|gives|is|are|i|we)\b(?! (?:better|best|higher|stronger|good))"
)
_SO_IS = re.compile(r"\bso (?:is|are|was|does|do|did|has|can|would)\b")
# Can somebody take the paper? For an unknown score it asks, else it seeks consent.
HANDS_ON = re.compile(r"\b(?:do|take|handle|review) (?:it|that|this)$")
_YOU_SEE = re.compile(r"\byou (?:can |could |may |might |do )?(?:see|have|know)\b")
_PREFERS = re.compile(r"(?:which|what|who|where|do) (?:\w+ ){0,3}?(?:you )?(?:rather|prefer)\b")
_SAYS = _pattern(
    r"\b(?:is|are|was|were|has|had|have|seems?|looks?|makes?|goes|gets?|scores?|i|i'm|i'd|i'll|i've|we|my|mine|let's|should|would|could|thanks|good|ok|okay|yes|no|great)\b"
)
_ONE_CELL = _pattern(
    r"^(?:is|are|was) (?:it|that)\b.*\b(?:<good>)\b(?!.*\b(?:any|for you|with you)\b)|^what (?:shade|colou?r)\b"
)
_OPINES = re.compile(r"\bi (?:have|see|think|guess|believe|got|know|know)\b")
_DECLARED = re.compile(r"(?:i|i'm|i've|i'll|i'd|we|we're|we've|we'll|my|let's|let us)\b")
_CHOICE = re.compile(r"(?:who|which|where|what)\b")
_ABOUT = re.compile(r"(?:how|what) about\b")
EVALUATES = _pattern(r"\b(?:<measure>|<good>|rate|score|fare|points?)\b")
NOUN_ASKS = _pattern(r"\b(?:<score>|please|yours?|same|next)\b")
_SCORED = _pattern(r"\b(?:<score>|<good>|rate|fare|perform\w*|compare\w*)\b")
_CONTENT = _pattern(
    r"""\b(?:<name>|<score>|<good>|who|which|where|whom|any\w*|see|have|know|prefer\w*|share|tell|rate|it|there|yours|he|she)\b"""
)
# What a question that leaves out one name, or both, points back with.
_POINTS = {
    "name": re.compile(
        r"\b(?:he|she|him|her|his|hers|they|their|them|there|same|too|as well|(?:on|for|at|in|with|of|about|do|does|have|is|was|handle|review|take|see|how's) (?:it|that|those|these)$|(?:is|does|how's) it\b|(?:that|this|these|those) (?:paper|reviewer|one|person|pair|column|row))\b"
        r"|\bcompares? (?:to|with)\b|\b(?:any|one) of (?:them|these|those)\b"
    ),
    "person": re.compile(r"\b(?:he|she|him|her|his|hers|they|their|them|same reviewer)\b"),
    "place": re.compile(
        r"\b(?:there|it|those|these|them|(?:which|what) (?:score|number|value)|that paper|this paper|same paper|that one)\b"
    ),
    "pair": _pattern(
        r"""\b(?:it|that|this|there|them|these|those|each|both|yours|same|(?:the|your|a|his|her|its) (?:<score>)|(?:that|this|the) (?:cell|pair|one|entry)|whatever|do (?:they|you) (?:score|rate)|they (?:score|compare|do)|for (?:him|her)|for (?:each|both))\b
        ^(?:the |your |any )?(?:<measure>|information|data|anything)$|^(?:what about |how about |what do )?you$|^(?:do|can|have|could|would|don't) you(?: \w+)?$|\b(?:help|help out|look|check|fill in|fill me in|tell me|known to you)$|\byour (?:table|side|sheet|data|list|board|end) (?:say|show|tell|have|back)\w*|^how (?:much|high|strong|good|well|bad|low)(?: ,.*)?$|to you$
        what (?:score|number|value|figure)\b"""
    ),
    "general": _pattern(
        r"^what (?:do|can|did) you (?:have|see|know|get|got)$|^(?:do|can) you (?:have|see|know) (?:any\w*|something)(?: \w+)?$|\b(?:scores|values|numbers|table|information|data|preferences?|plan|proposal)\b"
    ),
    "choice": re.compile(
        r"^(?:who|which|whose)\b|\b(?:which one|(?:of|between) (?:the two|them|these|those|both)|either of|which (?:one )?(?:is|has|would be|would|scores?) (?:better|higher|stronger|the higher)|who(?:'s| is| has| scores?| gets?) (?:better|stronger|higher|more))\b"
    ),
    "several": _pattern(
        r"\b(?:them|these|those|they|each|both|their|all (?:two|three|four)|scores|values|numbers|figures|following|(?:the|those|these) (?:two|three)|whatever|either)\b"
    ),
    "left out": _pattern(
        r"(?:what|how)(?:'s| is| are| was| about| does| do)? ?(?:[RP]\d+(?: and| or| ,)? ?)+(?:(?:score|value|number|get|do|have|then|rate) ?)*$|^(?:an?y? )?(?:<good>)\b|^(?:is|are|how (?:<good>) (?:is|are)) (?:<name>)(?: \w+){0,2} (?:<good>)$"
    ),
}
WHOLE = re.compile(  # a whole reviewer, a whole paper or the table
    r"\b(?:who|whom|where|which (?:\w+ )?(?:reviewers?|papers?|pairs?|ones?|of|scores?|is|are|cells?)|what (?:else|papers?|reviewers?|are)|any(?:one|body|where)|anything (?:else|higher|above)|some(?:one|body)|best|top|(?<!at )all|every\w*|others?|else"
    r"|most|highest|lowest|strongest|overall|general|generally|whole|entire|complete|full|papers|reviewers|strengths|favou?rites?|preferences?|options?|candidates?|recommendations?|suggestions?|backups?|ones|elsewhere|something (?:better|higher|else)|specialty|(?:for|on|at|with|in) anything|(?:good|strong|best|fit|suited) (?:at|for|on|in)$)\b"
)
INVITES = re.compile(
    r"\b(?:ask me|which (?:\w+ )?(?:reviewer|paper|pair)|name (?:a|one) (?:reviewer|pair)|like to know|interests? you|ask for|want to know|ask about|(?:which|what|whose|who) (?:\w+ ){0,6}(?:need|interested|looking for|curious))\b"
)
SEARCHES = re.compile(
    r"\b(?:any|other|good|better|some) (?:\w+ )?(?:options?|candidates?|backups?|recommendations?|suggestions?|alternatives?|ideas)\b"
)
FOLLOWS = re.compile(
    r"^(?:and|also|next|plus|now|then)\b|\b(?:next|same|please|pls|one more|i mean|i meant|make that|correction|too|as well)\b"
)
ALL_OF_THEM = re.compile(
    r"(?:both|each|all)(?: of (?:them|those))?(?: ,)?(?: please| then| would \w+ \w+| if (?:possible|you can))?"
)
SAME_TO_YOU = re.compile(r"(?:(?:what|how) about |would |do |are |and )*you")
IF_YOU_SEE = re.compile(
    r"(?:if|where|provided) (?:you|it's|it is|that's)(?: can| could| happen to)? (?:have|see|know|get|got|visible|known)\b"
)
ECHO = re.compile(r"(?:which|what) (\w+)$")
CORRECTS = re.compile(r"\b(?:i mean|i meant|make (?:that|it)|correction|i wanted|scratch that|sorry|oops|my mistake)\b")
# What its author says it cannot see, for a question beside it.
LACKS = re.compile(
    r"\b(?:unknowns?|missing|blanks?|gap|hidden|unseen|not visible|empty|nothing|no (?:scores?|values?|data|information|numbers?|ideas?|clue)|not sure|unsure"
    r"|mystery|(?:don't|do not|can't|cannot|can not|doesn't) (?:\w+ )?(?:know|see|have|show)|need)\b"
)
# A reply that states a score, or that there is none.
ANSWERS = re.compile(r"(?<![RP\d])\d|\b(?:no score|nothing|unknown|blank|don't|do not|cannot|can't)\b")


def act_of(text: str, clause: str, marked: bool) -> Act:
    """Returns what a clause does.

    Args:
        text: its words; `clause`: those after greetings and connectives.
        marked: whether a question mark closes it.
    """
    if (_RELATIVE.match(clause) and not marked) or _CANCELS.search(text) or _SAID.match(clause):
        return "none"
    request = _requests(clause)
    headed = request or _WH.match(clause) is not None or _INVERTED.match(clause) is not None
    asks = marked or headed
    if SUBORDINATE.match(clause) or (_OFFERS.match(clause) and asks):
        return "process" if _OFFERS.match(clause) else "none"
    if not asks:
        return "propose" if _SUGGESTS.match(clause) and _CONSENT.search(text) is None else "none"
    if _ABOUT.match(clause) and not _SUGGESTS.match(clause) and not _CONSENT.search(text):
        return "ask" if _SCORED.search(clause) or not NAME.search(clause) else "name"
    if not marked and _SO_IS.search(text):
        return "none"
    if _READY.match(clause):
        return "process"
    if _OPINION.match(clause):
        return "name" if all(by_side(clause)) and " of " in clause else "opinion"
    if _PREFERS.match(clause):
        return "opinion"
    if _CONSENT.search(text) or (_SUGGESTS.match(clause) and not request):
        return "suggest"
    if (
        _PLANS.search(text)
        and (_MAYBE.search(text) or not _VALUES.search(text))
        and not (_CHOICE.match(clause) or (request and _SCORED.search(text)))
    ):
        return "suggest"
    if request:
        return "ask"
    if _DECLARED.match(clause) and not _YOU_SEE.search(clause):
        return "suggest" if marked and NAME.search(clause) else "none"
    if not headed and (not marked or _OPINES.search(clause)):
        return "none"
    return "ask"


def heads(clause: str) -> bool:
    """Returns True if a clause begins as a question or a request."""
    return bool(_WH.match(clause) or _INVERTED.match(clause)) or _requests(clause)


def _requests(text: str) -> bool:
    return not _REQUESTING.isdisjoint(text.split(" ")) and bool(_IMPERATIVES.search(text) or _REQUEST.search(text))


def plans(text: str) -> bool:
    """Returns True if a clause assigns somebody."""
    return _PLANS.search(text) is not None or _CONSENT.search(text) is not None or _SUGGESTS.match(text) is not None


def points(clause: str, *ways: str) -> bool:
    """Returns True if a clause points back at what it leaves out, in any of the `ways` of `_POINTS`."""
    return any(_POINTS[way].search(clause) for way in ways)


def kind_of(clause: str) -> str:
    """Returns the kind of a question that names no pair; "is it high?" is about one all the same."""
    if _ONE_CELL.search(clause) or ("R_" in clause and "P_" in clause):
        return "pair"
    return "open" if _CONTENT.search(clause) or clause.endswith("about you") or WHOLE.search(clause) else "process"


def states(text: str) -> bool:
    """Returns True if a clause without a question is a statement, plan or remark of a known form."""
    return any(pattern.search(text) for pattern in (_SAYS, _CANCELS, SUBORDINATE, _SAID, _CONSENT, _PLANS))


# Where a new clause begins within a sentence.
_BEGINS = (
    rf"{FILLER.pattern}(?:{_WH.pattern}|{_INVERTED.pattern}|(?:please|kindly) |(?:{_TERMS['tell']}) (?:me|us)\b|let me know|lmk\b|yours?\b"
    r"|(?:i|i'm|i've|i'll|i'd|we|we're|we'll|my|mine|you|he|she|it|he's|she's|it's|that's|let's) \w|you\W*$|sorry\b|correction\b|no ?[,:] )"
)
_CUT = re.compile(
    rf";\s*|(?:[,:()\u2013\u2014]|\s-+\s|\b(?:and|but|or|while|otherwise)\b)\s*(?={_BEGINS})"
    r"|(?<!know )(?<!what )(?<!wonder )(?<!wondering )(?<!me )(?<!ask )(?<!check )(?<!see )(?<!sure )(?<!confirm )(?<!it )(?<!great )(?<!nice )(?<!helpful )"
    r"\b(?=(?:if|unless|because|since|although|now that|given that)\b(?! (?:you|i) (?:could|can|would|might|may|was|were)\b))"
)
_VALUE = re.compile(r"(?<![RP\d])\d")


def cut(sentence: str) -> list[str]:
    """Returns the clauses of a sentence.

    "For R0 on P0, what do you have" stays whole, and so does "between R0 and R1, who is better on P0"; "R0 on P0, who is left for P1" does not.
    """
    cuts = [match.end() for match in _CUT.finditer(sentence)]
    out: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(sentence)], strict=True):
        part = sentence[start:end].strip(" ,;:")
        values = out and sentence[:start].rstrip().endswith(";") and _VALUE.search(out[-1]) and _VALUE.search(part)
        if values or (out and _continues(out[-1], part)):
            out[-1] += f"{'; ' if values else ', '}{part}"
        elif part:
            out.append(part)
    return out


def _continues(before: str, part: str) -> bool:
    """Returns True if a part asks about what stands before it, and names only that."""
    point = opened(words(part))
    another = point.startswith("who") and NAME.search(part) is not None and all(by_side(before))
    return (
        is_bare(before.removeprefix("between ")) and not another and not _OWN.match(point) and not CORRECTS.search(part)
    )
