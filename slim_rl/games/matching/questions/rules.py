"""The wording of questions, as an ordered table: the first rule that fits from a question's first word on names its kind.

Kinds are the labels, and six more, five of which `scope.settle` turns into labels by what the clause names:

    info     a request for information: `pair` if it names a pair, else `open`
    about    "what about ...": `check` for a pair or for nothing named, else `open`
    opinion  "what do you think of ...": `open` for a paper alone, else `check`
    which    a choice: `pair` if it names a reviewer and several papers, else `open`
    state    "is it high?": `pair` if what it leaves out was named before, else `open`
    none     asks nothing

A kind with "?" holds only for clauses that end in a question mark, one with "!" only for the others. Patterns read the
words of `reading.clauses.word_clauses`; capitals stand for names.
"""

from __future__ import annotations

import re
from functools import cache

# The kinds of question, and what a reader is told of each: a new one is an entry here, and a rule below that names it.
KINDS = {"pair": "about a pair", "open": "open", "check": "asks consent", "process": "about the game"}
INFORMATION_SEEKING = frozenset({"pair", "open"})

_MACROS = {
    "<who>": r"(?:[RP]\w+|he|she|they|him|her|them|his|their)",
    "<that>": r"(?:this|that|these|those|it|mine|everything|my (?:proposal|plan|suggestion)|the (?:proposal|plan|others?|changes?))",
    "<score>": r"(?:information|scores?|values?|numbers?|data|ratings?|points?|greens?|reds?|dark|light|knowledge|insights?|ideas?|"
    r"options?|preferences?|suggestions?|candidates?|expertise|match|matches|picks?|choices?|strengths?|best|top|highest|"
    r"strongest|good|better|decent|strong|great|bad|high|low|blanks?|unknowns?|locks?|favou?rites?|squares?|recommendations?|"
    r"thoughts?|opinions?|table|board|column|row|cells?|reviewers?|papers?)",
    "<good>": r"(?:good|great|bad|well|scores?|high|low|strong|green|red|grey|gray|dark|light|blank|unknown|known|better|best|worse|"
    r"decent|fit|handle|experienced?|capable|qualified|solid|show\w*|expert\w*|suit\w*|rank\w*|rated?|look\w*|perform\w*|any|"
    r"strengths?|skilled|knowledgeable|familiar|compare|have|competent|weak|poor|terrible|excellent|above|below|average|higher|lower)",
    "<objection>": r"(?:objections?|problems?|issues?|concerns?|complaints?|changes?|disagreements?|reservations?|feedback|comments?|"
    r"adjustments?|modifications?|(?:better|other|different|counter) (?:proposals?|plans?|arrangements?)|wrong|off|amiss|changed|swapped|replaced|"
    r"(?:to|you'd|you would|you want to|you'd like to|you would like to) (?:change|add|swap|modify|adjust))",
    "<give>": r"(?:tell|share|sharing|show|list|give|giving|provide|providing|telling|send|confirm|let (?:me|us) know|report)",
    "<please>": r"(?:(?:please|also|maybe|at least|just|quickly|kindly|possibly|perhaps|be able to|be willing to|mind) )*",
}


_TABLE = [
    # --- asks nothing
    (
        "none",
        r"who (?:knows|cares|i|we|i'm)\b|what (?:i|i'm|i've|we|an?|he|she|they|matters|works for me)\b|"
        r"where (?:i|i'm|we|he|she|they)\b",
    ),
    (
        "none!",
        r"which (?:leaves|is|are|isn't|aren't|would|means|was|were|puts|brings|i|we|makes|gives|seems|works|could|"
        r"every|will|has|have|doesn't|he|she|they|you|can)\b|how (?:i|nice|funny|lucky)\b|"
        r"who is an? (?:pretty|very|really)",
    ),
    ("none", r"did i\b"),
    ("none", r"let (?:me|us) (?!know)"),
    (
        "none",
        r"let me know when|share (?!your|the|any|all|what|with|which|some)|list of|show (?!me|your|us)|"
        r"send (?!me your|your (?:score|best|top|value|dark|information))",
    ),
    ("none", r"do R\w+ (?:on|for|at|in)|have (?!you|we|any)|got (?!any|you)|check (?!if|whether|this|that|it)"),
    (
        "none",
        r"any (?:of|other|paper|reviewer|one)s? (?:is|are|works?|would)\b|"
        r"anything (?:is|works?|else is|would|you|we|i|he|she)\b|anyone (?:is|works?)\b",
    ),
    # --- the game itself
    (
        "process",
        r"how are (?:you(?! (?:feel|lik|seeing))|things)|how(?:'s| is) (?:it going|your|everything|life)|how's it|"
        r"what's up|you there|are you (?:still )?there|that all\b|(?:is there )?any (?:\w+ )?reason\b|"
        r"who does that leave|do you want to (?:work|collaborate|play|help)|"
        r"where (?:is|was|are|were) <who>(?!.*\b<good>)|how about (?:you|i) (?:send|propose|make|submit|go)|"
        r"what (?:can|should|do) we do$|what am i|am i\b|tell me what i\b",
    ),
    ("process?", r"you (?:said|mean)\b"),
    (
        "process",
        r"(?:did|do|are) you (?:mean|saying|talking|referring)|what do you mean|who(?:'s| is) (?:this|that)$|"
        r"(?:which|what) (?:row|column|cell)$|which (?:\w+ )?(?:do|did|are) you (?:mean|saying|talking|referring)|"
        r"what (?:happened|next|now|time|was that)|who do you mean",
    ),
    (
        "process",
        r"(?:did|have|were|had) you (?:see|get|receive|read|accept|reject|send|submit|look|miss|forget|able|done|"
        r"finished|tried|played|say|choose|pick|notice|understand|realize)",
    ),
    (
        "process",
        r"do you (?:think you|understand|speak|know how|need (?:time|a minute|help|more time|me)|want (?:me )?to "
        r"(?:send|propose|make|go|start|try|submit|create|do|wait|take|be)|have (?:time|a question|enough|to go)|"
        r"mind if i)",
    ),
    (
        "process",
        r"(?:are|you) (?:you )?(?:ready|done|finished|new|human|real|a (?:bot|human|person|robot)|sure|able|going "
        r"to (?:send|propose|submit)|sending|planning|wanting|looking|asking|trying|working|the one)",
    ),
    (
        "process",
        r"(?:can|could|will|would|may|might|should|shall) (?:i|we|you)(?: guys)? <please>(?:re-?send|resubmit|"
        r"re-?propose|propose|send (?!.*\b(?:information|scores?|values?|numbers)\b)(?:me |over |us |it |that |"
        r"them )?(?:an?|the|your|my|another|over|in|back|again|that|it|this|one)?\b|submit|create|repeat|clarify|"
        r"explain|help|make (?:an?|the|another|your) (?:\w+ )?(?:proposal|offer|plan)|wait|rephrase|start|type|"
        r"hold|reject|find me|slow|finish|say that|begin)",
    ),
    (
        "process",
        r"would you like (?:me )?to|would you like (?:a|some|another) |want me to|"
        r"(?:want|care|interested) to (?:send|propose|try|go|start|make|submit|see)|whose turn|"
        r"is it (?:my|your) turn|who(?:'s| is) (?:turn|next|up|first|proposing|sending|going)|"
        r"who (?:goes|should go|wants to|will (?:send|propose|go)|sends|proposes|starts)",
    ),
    (
        "process",
        r"(?:can|could) you see (?:the (?:scores?|values?|proposal|chat|message|same|table)|my|me|it|them|this|"
        r"that|everything)|why|when|who$|what$|how$|which ones?$|which$|how come|huh|is this your|"
        r"is that (?:all|it$|everything)|how (?:do|should|would|did|can|shall) (?:we|you want|i)\b",
    ),
    (
        "process",
        r"where (?:was|were|are) (?:i|we)|where are you at|(?:may|can|could) i ask why|what does .{0,20}\bmean\b|"
        r"(?:which|what)(?: \w+)? of (?:mine|my)\b|would you like\b.*\bmy\b|"
        r"what(?:'s| is) (?:left|going on|next|wrong|happening|new|this|that|the (?:rule|goal|point|problem|issue|"
        r"max|plan))|what are you (?:doing|saying|trying|talking)|may i (?!know|ask)",
    ),
    # --- consent and opinion
    (
        "open",
        r"what (?:do|would|did) you (?:think|say) (?!has gone)(?:is|are|would|will|can|should|has|have|could|"
        r"might|R\w+|he|she|they|P\w+ should|we should)|what are you thinking (?:for|about|on)|"
        r"what (?:do|would|did) you think about for",
    ),
    (
        "opinion",
        r"what (?:do|would|did) you (?:think|say|feel)|what (?:are|is) you thinking|"
        r"what are (?:your?|the) (?:thoughts|opinions?|views?|feelings?)|"
        r"what(?:'s| is) your (?:call|take|verdict|thought|opinion|view|feeling)|"
        r"(?:any |your |got any )?(?:thoughts|opinions?)\b(?! (?:for|who|where))|what's the verdict",
    ),
    (
        "check",
        r"what changes|how (?:do|would|did|are) you (?:feel|feeling|like|liking)|"
        r"how (?:do|does|would|will|did|is|about|'s)? ?<that>\b|how's <that>",
    ),
    (
        "check",
        r"(?:how|how's|how would|how does|how do|how will|how'd|how is) <who>.*\b(?:sound|work|feel)s?\b|"
        r"how about (?:we|i|you \w+|if|just|\w+ing|an?|our|my|instead)\b",
    ),
    ("about", r"(?:how|what) about\b"),
    (
        "info",
        r"would you say\b|do we (?:have (?!to)|know|see)\b|"
        r"(?:may|can|could) i (?:know|ask|get|have|see|hear)\b(?=.*\b(?:your|what|how|who|which|score|value|"
        r"information)\b)|do you want to (?:share|tell|show|list)|would you (?:prefer|recommend|suggest)|"
        r"should we know",
    ),
    ("process", r"should (?:i|we) (?:create|send|propose|submit|make)|shall (?:i|we) (?:propose|send|submit)"),
    (
        "check",
        r"is there (?:an?|any) (?:possibility|chance|way|world)\b|what if|why not|why don't|"
        r"(?:shall|should|can|could|may|might|do|would|will|are|did|don't) (?:we|i)\b|"
        r"would it (?:be|make|work|help)|can't we",
    ),
    (
        "state",
        r"what (?:shade|colou?r)(?: of \w+)?$|(?:is|are|was) (?:that|it|they|he|she) (?:the same|over|above|below|under|your|(?:an? )?(?:(?:really|"
        r"very|pretty) )?(?:dark|light|medium|green|red|high|low|good))\b(?! (?:with|to|for) you)(?!$|.*\bany)",
    ),
    ("check", r"(?:is|are|does|do|would|will|was|were|could|can|did|should|isn't|doesn't|wouldn't|don't) <that>\b"),
    (
        "check",
        r"(?:any|anything|(?:do|did|would) you (?:have|see|notice|want|like)(?: any| anything)?(?: other)?|got "
        r"any|is there any(?:thing)?|are there any|see any(?:thing)?|was there any\w*|were there any)\b(?! (?:\w+ "
        r"){0,3}(?:for|on|about) [RP]).{0,60}\b<objection>",
    ),
    (
        "check",
        r"(?:are|were|would) you (?:be )?(?:okay|fine|good|happy|cool|comfortable|on board|satisfied|willing|open|"
        r"agree\w*|in agreement|down|with me)\b(?! (?:to|at) (?:tell|shar))",
    ),
    (
        "check",
        r"(?:can|could|would|will) you <please>(?:accept|approve|agree|live|take|go with|work with|spare|give up|"
        r"put|move|assign|use|switch|swap|consider|do\b|look for|keep|place|let|match|check (?:this|that|it|if|"
        r"whether|my|the))",
    ),
    (
        "check",
        r"do you (?:agree|approve|accept|like|want|feel(?! like <who>)|mind|think (?:we|that|this|it|i|these|"
        r"those|everything))|"
        r"would you (?:accept|agree|approve|mind(?! (?:telling|sharing|giving|letting|showing|checking|looking))|consider|rather|"
        r"want|say yes|like R)",
    ),
    (
        "check",
        r"check (?:if|whether)|"
        r"(?:let (?:me|us) know|tell me|say|see|lmk) (?:if|whether) (?!.*\b(?:you (?:have|see|know|got)|<who> "
        r"(?:is|are|has|scores?) (?:an? )?(?:good|any|strong|high|bad))\b)",
    ),
    (
        "check?",
        r"you (?:okay|fine|good|happy|cool|agree|with me)\b|"
        r"(?:sounds?|looks?) (?:good|okay|great|fair|reasonable|right)(?: (?:to|for|with) you)?$|"
        r"check (?:this|that|it|mine)|anything else (?:you|to|we)",
    ),
    (
        "check",
        r"(?:let (?:me|us) know|tell me|lmk) (?:what|how|your) .{0,20}\b(?:think|thoughts?|looks?|feel|sounds?|"
        r"works?|changes?|opinion|prefer)",
    ),
    # --- information
    (
        "info",
        r"(?:can|could|would|will|are|do) you <please>(?:able to |willing to )?(?:see|tell|<give>|check|checking|find out|"
        r"look up|look at|looking up|looking at|compare|describe|fill|complete)\b(?! (?:me )?(?:a|another|your|the) (?:new |full |better )?proposal)",
    ),
    (
        "check",
        r"(?:can|could|would) (?:<who>|either|both|(?:these|those) two)\b(?: both| either| of them)?"
        r" (?:be|go)(?: both| either| placed| put| assigned| moved)? (?:on|at|in|to|with)\b",
    ),
    ("check", r"which (?:one )?(?:should|shall|do|would) (?:we|you) (?:do|choose|go|pick|want|rather|like|use|keep)\b"),
    ("open", r"lay it on me|hit me with|you (?:go |start )?first$"),
    ("open", r"who(?:m|se|'s|'d|'ll)?\b"),
    ("open", r"where(?:'s)?\b"),
    ("which", r"which\b"),
    ("which?", r"between"),
    (
        "info",
        r"what (?:else |other |all )?(?:do|did|does|can|have|has|would|should|could|works?|looks?|makes?|goes|"
        r"fits?|scores?) ?",
    ),
    ("info", r"what(?:'s|'re| is| are| was| were)\b"),
    (
        "info",
        r"what (?:else|other|kind|sort|shade|colou?r|papers?|reviewers?|information|data|values?|scores?|ones?|"
        r"knowledge|options?|numbers?|people|person|ratings?|preferences?|expertise|are|P|R)",
    ),
    (
        "info",
        r"how (?:would|do|did|could) you (?:rate|rank|score|see)|"
        r"how (?:good|bad|strong|well|highly|likely|sure|high|low|green|red|dark|much|great|confident|experienced|"
        r"qualified|knowledgeable|suitable|solid|competent|close|far|decent|many|familiar)\b",
    ),
    (
        "info",
        r"how(?:'s|'d| is| are| was| does| do| did| would| will| might| should)? (?:your |the )?(?:<who>|your|"
        r"everyone|anyone|others)",
    ),
    (
        "info",
        r"do you (?:also |still |really )?(?:think|feel like|believe|feel that|know if|know whether) (?:<who>|"
        r"there|anyone|someone|any|the other)|"
        r"(?:do|does|did|don't|have|has) (?:you|your \w+)(?: guys| also| happen to| still| currently| maybe| by "
        r"any chance| even)* (?:have|see|know|got|show|hold|remember|recall|find|prefer|any|anything|anyone|need|"
        r"say|get)\b",
    ),
    ("info?", r"you (?:have|got|see|know) (?:an?|any|anything|anyone|anywhere|someone|something)\b"),
    ("info", r"(?:got|have) (?:an?|any|anything|anyone|anywhere|someone|something)\b"),
    ("info", r"your (?:scores?|values?|numbers?|ratings?) (?:for|on|of)\b(?!.*\b(?:is|are|was|were|seems?|looks?)\b)"),
    (
        "info",
        r"any(?:thing|one|where)?\b(?=(?: \w+){0,3} (?:[RP]\w+|<score>|else|who|what|where|how|if|in your|on "
        r"your)\b)",
    ),
    ("info?", r"any(?:thing|one|where)?\b|(?:and )?you(?:rs)?$|(?:on )?your (?:end|side|board)$|(?:do|can) you$"),
    (
        "info",
        r"(?:is|are|was|isn't|aren't|were) there\b|"
        r"(?:is|are|does|do|has|have|can|could|would|will|doesn't|isn't) (?:any|anyone|anything|either|someone|"
        r"something|everyone|your|the)\b",
    ),
    (
        "check",
        r"(?:is|are|does|do|would|will|can|could|should|has|might|may) <who>\b.*\b(?:okay|fine|works?|agreeable|"
        r"acceptable|go|be placed|move|swap|do (?:it|that|this|P\w+)|take|be on|be at|for now|"
        r"instead)\b(?!.*\b(?:good|well|best|better|score|any|anything|somewhere|something)\b)",
    ),
    ("info", r"(?:is|are|does|do|would|will|can|could|has|have|was|did|isn't|doesn't|aren't|wouldn't) <who>\b"),
    (
        "info",
        r"(?:<give>)(?: me| us)? (?!R\w+ (?:on|for|at))(?=about\b|the following\b|your\b|all your|.*\b<score>|"
        r".*\b(?:what|who|how|where|which)\b)(?!.*\bproposals?\b)",
    ),
    (
        "info",
        r"(?:i(?: would|'d)?|i am|i was|i'm) (?:want|like|love|need|wonder|wondering|curious)(?:ing)? (?:to "
        r"(?:know|hear|ask)|your|you to (?:tell|share)|what|who|how|if|the information|some information|"
        r"information|more information|about)\b",
    ),
    (
        "info",
        r"(?:want|care|like|able|interested|curious) (?:to|in|what|how|who|about) (?:share|sharing|tell\w*|"
        r"know\w*|compare|how|what|who|[RP])",
    ),
]


@cache
def _union(asked: bool) -> re.Pattern[str]:
    """One alternation of the rules for clauses with or without a question mark, in order; the group's name holds the kind."""
    parts = []
    for number, (kind, pattern) in enumerate(_TABLE):
        if kind[-1] == ("!" if asked else "?"):
            continue
        for name, macro in _MACROS.items():
            pattern = pattern.replace(name, macro)
        parts.append(f"(?P<{kind.rstrip('?!')}_{number}>{pattern})")
    return re.compile("|".join(parts))


def kind_at(text: str, start: int, asked: bool) -> str | None:
    """The kind of the question that begins at text[start:]; None if no rule fits."""
    match = _union(asked).match(text, start)
    return match.lastgroup.rpartition("_")[0] if match is not None and match.lastgroup is not None else None
