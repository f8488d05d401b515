"""The wording of questions, as an ordered table: the first rule that fits from a question's first word on names its kind.

Kinds are the labels, and six more, five of which `scope.settle` turns into labels by what the clause names:

    info     a request for information: `pair` if it names a pair, else `open`
    about    "what about ...": `check` for a pair or for nothing named, else `open`
    opinion  "what do you think of ...": `open` for a paper alone, else `check`
    which    a choice: `pair` if it names a reviewer and several papers, else `open`
    state    "is it high?": `pair` if what it leaves out was named before, else `open`
    none     asks nothing

A kind with "?" holds only for clauses that end in a question mark, one with "!" only for the others. Patterns read the
words of `reading.clauses.word_clauses`; capitals stand for names. How a table is written: `reading.patterns`.
"""

from __future__ import annotations

import re
from functools import cache

from slim_rl.games.matching.reading.patterns import Vocabulary

# The kinds of question, and what a reader is told of each: a new one is an entry here, and a rule below that names it.
KINDS = {"pair": "about a pair", "open": "open", "check": "asking for agreement", "process": "about the game"}
INFORMATION_SEEKING = frozenset({"pair", "open"})

_TABLE = Vocabulary(r"""
<who>    (?:[RP]\w+|he|she|they|him|her|them|his|their)
<that>   (?:this|that|these|those|it|mine|everything|my (?:proposal|plan|suggestion)|the (?:proposal|plan|others?
         changes?))
<score>  (?:information|scores?|values?|numbers?|data|ratings?|points?|greens?|reds?|dark|light|knowledge|insights?
         ideas?|options?|preferences?|suggestions?|candidates?|expertise|match|matches|picks?|choices?|strengths?|best
         top|highest|strongest|good|better|decent|strong|great|bad|high|low|blanks?|unknowns?|locks?|favou?rites?
         squares?|recommendations?|thoughts?|opinions?|table|board|column|row|cells?|reviewers?|papers?)
<good>   (?:good|great|bad|well|scores?|high|low|strong|green|red|grey|gray|dark|light|blank|unknown|known|better|best
         worse|decent|fit|handle|experienced?|capable|qualified|solid|show\w*|expert\w*|suit\w*|rank\w*|rated?|look\w*
         perform\w*|any|strengths?|skilled|knowledgeable|familiar|compare|have|competent|weak|poor|terrible|excellent
         above|below|average|higher|lower)
<wrong>  (?:objections?|problems?|issues?|concerns?|complaints?|changes?|disagreements?|reservations?|feedback|comments?
         adjustments?|modifications?|(?:better|other|different|counter) (?:proposals?|plans?|arrangements?)|wrong|off
         amiss|changed|swapped|replaced|(?:to|you'd|you would|you want to|you'd like to|you would like to) (?:change|add
         swap|modify|adjust))
<give>   (?:tell|share|sharing|show|list|give|giving|provide|providing|telling|send|confirm|let (?:me|us) know|report)
<please> (?:(?:please|also|maybe|at least|just|quickly|kindly|possibly|perhaps|be able to|be willing to|mind) )*

none     who (?:knows|cares|i|we|i'm)\b|what (?:i|i'm|i've|we|an?|he|she|they|matters|works for me)\b
         where (?:i|i'm|we|he|she|they)\b
none!    which (?:leaves|is|are|isn't|aren't|would|means|was|were|puts|brings|i|we|makes|gives|seems|works|could|every
         will|has|have|doesn't|he|she|they|you|can)\b|how (?:i|nice|funny|lucky)\b|who is an? (?:pretty|very|really)
none     did i\b|let (?:me|us) (?!know)|let me know when|share (?!your|the|any|all|what|with|which|some)|list of
         show (?!me|your|us)|send (?!me your|your (?:score|best|top|value|dark|information))|do R\w+ (?:on|for|at|in)
         have (?!you|we|any)|got (?!any|you)|check (?!if|whether|this|that|it)
         any (?:of|other|paper|reviewer|one)s? (?:is|are|works?|would)\b
         anything (?:is|works?|else is|would|you|we|i|he|she)\b|anyone (?:is|works?)\b
process  how are (?:you(?! (?:feel|lik|seeing))|things)|how(?:'s| is) (?:it going|your|everything|life)|how's it
         what's up|you there|are you (?:still )?there|that all\b|(?:is there )?any (?:\w+ )?reason\b|who does that leave
         do you want to (?:work|collaborate|play|help)|where (?:is|was|are|were) <who>(?!.*\b<good>)
         how about (?:you|i) (?:send|propose|make|submit|go)|what (?:can|should|do) we do$|what am i|am i\b
         tell me what i\b
process? you (?:said|mean)\b
process  (?:did|do|are) you (?:mean|saying|talking|referring)|what do you mean|who(?:'s| is) (?:this|that)$
         (?:which|what) (?:row|column|cell)$|which (?:\w+ )?(?:do|did|are) you (?:mean|saying|talking|referring)
         what (?:happened|next|now|time|was that)|who do you mean
         (?:did|have|were|had) you (?:see|get|receive|read|accept|reject|send|submit|look|miss|forget|able|done|finished
         tried|played|say|choose|pick|notice|understand|realize)
         do you (?:think you|understand|speak|know how|need (?:time|a minute|help|more time|me)|want (?:me )?to (?:send
         propose|make|go|start|try|submit|create|do|wait|take|be)|have (?:time|a question|enough|to go)|mind if i)
         (?:are|you) (?:you )?(?:ready|done|finished|new|human|real|a (?:bot|human|person|robot)|sure|able
         going to (?:send|propose|submit)|sending|planning|wanting|looking|asking|trying|working|the one)
         (?:can|could|will|would|may|might|should|shall) (?:i|we|you)(?: guys)? <please>(?:re-?send|resubmit|re-?propose
         propose|send (?!.*\b(?:information|scores?|values?|numbers)\b)(?:me |over |us |it |that |them )?(?:an?|the|your
         my|another|over|in|back|again|that|it|this|one)?\b|submit|create|repeat|clarify|explain|help|make (?:an?|the
         another|your) (?:\w+ )?(?:proposal|offer|plan)|wait|rephrase|start|type|hold|reject|find me|slow|finish
         say that|begin)|would you like (?:me )?to
         would you like (?:a|some|another) |want me to
         (?:want|care|interested) to (?:send|propose|try|go|start|make|submit|see)|whose turn|is it (?:my|your) turn
         who(?:'s| is) (?:turn|next|up|first|proposing|sending|going)
         who (?:goes|should go|wants to|will (?:send|propose|go)|sends|proposes|starts)
         (?:can|could) you see (?:the (?:scores?|values?|proposal|chat|message|same|table)|my|me|it|them|this|that
         everything)|why|when|who$|what$|how$|which ones?$|which$|how come|huh|is this your
         is that (?:all|it$|everything)|how (?:do|should|would|did|can|shall) (?:we|you want|i)\b
         where (?:was|were|are) (?:i|we)|where are you at|(?:may|can|could) i ask why|what does .{0,20}\bmean\b
         (?:which|what)(?: \w+)? of (?:mine|my)\b|would you like\b.*\bmy\b
         what(?:'s| is) (?:left|going on|next|wrong|happening|new|this|that|the (?:rule|goal|point|problem|issue|max
         plan))|what are you (?:doing|saying|trying|talking)|may i (?!know|ask)
open     what (?:do|would|did) you (?:think|say) (?!has gone)(?:is|are|would|will|can|should|has|have|could|might|R\w+
         he|she|they|P\w+ should|we should)|what are you thinking (?:for|about|on)
         what (?:do|would|did) you think about for
opinion  what (?:do|would|did) you (?:think|say|feel)|what (?:are|is) you thinking
         what are (?:your?|the) (?:thoughts|opinions?|views?|feelings?)
         what(?:'s| is) your (?:call|take|verdict|thought|opinion|view|feeling)
         (?:any |your |got any )?(?:thoughts|opinions?)\b(?! (?:for|who|where))|what's the verdict
check    what changes|how (?:do|would|did|are) you (?:feel|feeling|like|liking)
         how (?:do|does|would|will|did|is|about|'s)? ?<that>\b|how's <that>
         (?:how|how's|how would|how does|how do|how will|how'd|how is) <who>.*\b(?:sound|work|feel)s?\b
         how about (?:we|i|you \w+|if|just|\w+ing|an?|our|my|instead)\b
about    (?:how|what) about\b
info     would you say\b|do we (?:have (?!to)|know|see)\b
         (?:may|can|could) i (?:know|ask|get|have|see|hear)\b(?=.*\b(?:your|what|how|who|which|score|value
         information)\b)|do you want to (?:share|tell|show|list)|would you (?:prefer|recommend|suggest)|should we know
process  should (?:i|we) (?:create|send|propose|submit|make)|shall (?:i|we) (?:propose|send|submit)
check    is there (?:an?|any) (?:possibility|chance|way|world)\b|what if|why not|why don't
         (?:shall|should|can|could|may|might|do|would|will|are|did|don't) (?:we|i)\b|would it (?:be|make|work|help)
         can't we
state    what (?:shade|colou?r)(?: of \w+)?$
         (?:is|are|was) (?:that|it|they|he|she) (?:the same|over|above|below|under|your|(?:an? )?(?:(?:really|very
         pretty) )?(?:dark|light|medium|green|red|high|low|good))\b(?! (?:with|to|for) you)(?!$|.*\bany)
check    (?:is|are|does|do|would|will|was|were|could|can|did|should|isn't|doesn't|wouldn't|don't) <that>\b
         (?:any|anything|(?:do|did|would) you (?:have|see|notice|want|like)(?: any| anything)?(?: other)?|got any
         is there any(?:thing)?|are there any|see any(?:thing)?|was there any\w*
         were there any)\b(?! (?:\w+ ){0,3}(?:for|on|about) [RP]).{0,60}\b<wrong>
         (?:are|were|would) you (?:be )?(?:okay|fine|good|happy|cool|comfortable|on board|satisfied|willing|open
         agree\w*|in agreement|down|with me)\b(?! (?:to|at) (?:tell|shar))
         (?:can|could|would|will) you <please>(?:accept|approve|agree|live|take|go with|work with|spare|give up|put|move
         assign|use|switch|swap|consider|do\b|look for|keep|place|let|match|check (?:this|that|it|if|whether|my|the))
         do you (?:agree|approve|accept|like|want|feel(?! like <who>)|mind|think (?:we|that|this|it|i|these|those
         everything))
         would you (?:accept|agree|approve|mind(?! (?:telling|sharing|giving|letting|showing|checking|looking))|consider
         rather|want|say yes|like R)|check (?:if|whether)
         (?:let (?:me|us) know|tell me|say|see|lmk) (?:if|whether) (?!.*\b(?:you (?:have|see|know|got)|<who> (?:is|are
         has|scores?) (?:an? )?(?:good|any|strong|high|bad))\b)
check?   you (?:okay|fine|good|happy|cool|agree|with me)\b
         (?:sounds?|looks?) (?:good|okay|great|fair|reasonable|right)(?: (?:to|for|with) you)?$
         check (?:this|that|it|mine)|anything else (?:you|to|we)
check    (?:let (?:me|us) know|tell me|lmk) (?:what|how|your) .{0,20}\b(?:think|thoughts?|looks?|feel|sounds?|works?
         changes?|opinion|prefer)
info     (?:can|could|would|will|are|do) you <please>(?:able to |willing to )?(?:see|tell|<give>|check|checking|find out
         look up|look at|looking up|looking at|compare|describe|fill|complete)\b(?! (?:me )?(?:a|another|your
         the) (?:new |full |better )?proposal)
check    (?:can|could|would) (?:<who>|either|both|(?:these|those) two)\b(?: both| either| of them)? (?:be
         go)(?: both| either| placed| put| assigned| moved)? (?:on|at|in|to|with)\b
         which (?:one )?(?:should|shall|do|would) (?:we|you) (?:do|choose|go|pick|want|rather|like|use|keep)\b
open     lay it on me|hit me with|you (?:go |start )?first$|who(?:m|se|'s|'d|'ll)?\b|where(?:'s)?\b
which    which\b
which?   between
info     what (?:else |other |all )?(?:do|did|does|can|have|has|would|should|could|works?|looks?|makes?|goes|fits?
         scores?) ?|what(?:'s|'re| is| are| was| were)\b
         what (?:else|other|kind|sort|shade|colou?r|papers?|reviewers?|information|data|values?|scores?|ones?|knowledge
         options?|numbers?|people|person|ratings?|preferences?|expertise|are|P|R)
         how (?:would|do|did|could) you (?:rate|rank|score|see)
         how (?:good|bad|strong|well|highly|likely|sure|high|low|green|red|dark|much|great|confident|experienced
         qualified|knowledgeable|suitable|solid|competent|close|far|decent|many|familiar)\b
         how(?:'s|'d| is| are| was| does| do| did| would| will| might| should)? (?:your |the )?(?:<who>|your|everyone
         anyone|others)
         do you (?:also |still |really )?(?:think|feel like|believe|feel that|know if|know whether) (?:<who>|there
         anyone|someone|any|the other)
         (?:do|does|did|don't|have|has) (?:you|your \w+)(?: guys| also| happen to| still| currently| maybe| by any chance| even)* (?:have
         see|know|got|show|hold|remember|recall|find|prefer|any|anything|anyone|need|say
         get)\b
info?    you (?:have|got|see|know) (?:an?|any|anything|anyone|anywhere|someone|something)\b
info     (?:got|have) (?:an?|any|anything|anyone|anywhere|someone|something)\b
         your (?:scores?|values?|numbers?|ratings?) (?:for|on|of)\b(?!.*\b(?:is|are|was|were|seems?|looks?)\b)
         any(?:thing|one|where)?\b(?=(?: \w+){0,3} (?:[RP]\w+|<score>|else|who|what|where|how|if|in your|on your)\b)
info?    any(?:thing|one|where)?\b|(?:and )?you(?:rs)?$|(?:on )?your (?:end|side|board)$|(?:do|can) you$
info     (?:is|are|was|isn't|aren't|were) there\b
         (?:is|are|does|do|has|have|can|could|would|will|doesn't|isn't) (?:any|anyone|anything|either|someone|something
         everyone|your|the)\b
check    (?:is|are|does|do|would|will|can|could|should|has|might|may) <who>\b.*\b(?:okay|fine|works?|agreeable
         acceptable|go|be placed|move|swap|do (?:it|that|this|P\w+)|take|be on|be at|for now|instead)\b(?!.*\b(?:good
         well|best|better|score|any|anything|somewhere|something)\b)
info     (?:is|are|does|do|would|will|can|could|has|have|was|did|isn't|doesn't|aren't|wouldn't) <who>\b
         (?:<give>)(?: me| us)? (?!R\w+ (?:on|for|at))(?=about\b|the following\b|your\b|all your|.*\b<score>|.*\b(?:what
         who|how|where|which)\b)(?!.*\bproposals?\b)
         (?:i(?: would|'d)?|i am|i was|i'm) (?:want|like|love|need|wonder|wondering|curious)(?:ing)? (?:to (?:know|hear
         ask)|your|you to (?:tell|share)|what|who|how|if|the information|some information|information|more information
         about)\b
         (?:want|care|like|able|interested|curious) (?:to|in|what|how|who|about) (?:share|sharing|tell\w*|know\w*
         compare|how|what|who|[RP])
""").rows


@cache
def _union(asked: bool) -> re.Pattern[str]:
    """One alternation of the rules for clauses with or without a question mark, in order; the group's name holds the kind."""
    parts = []
    for number, (kind, pattern) in enumerate(_TABLE):
        if kind[0] != "<" and kind[-1] != ("!" if asked else "?"):
            parts.append(f"(?P<{kind.rstrip('?!')}_{number}>{pattern})")
    return re.compile("|".join(parts))


def kind_at(text: str, start: int, asked: bool) -> str | None:
    """The kind of the question that begins at text[start:]; None if no rule fits, or one that says that nothing is asked."""
    match = _union(asked).match(text, start)
    kind = ((match and match.lastgroup) or "none_").rpartition("_")[0]
    return None if kind == "none" else kind
