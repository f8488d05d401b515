"""Time of the dialogue loop per turn, with an instant policy and partner, compared with the game's.

python benchmarks/bench_loop.py [--dialogues 500] [--turns 20]
"""

import argparse
import asyncio
import time
from typing import Any, ClassVar

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import Game
from slim_rl.dialogue.players import Partner, Policy, Sampled
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.state import MatchingSettings
from slim_rl.lab.warmstart.tokenizer import train_tokenizer

QUESTION, ANSWER = "[message] What is Ava Li on BLEU?", "[message] Ava Li on BLEU: 62."


class InstantPolicy(Policy):
    identity: ClassVar[dict[str, Any]] = {"engine": "instant"}

    def __init__(self, chat: Chat) -> None:
        self.ids = chat.said_ids(QUESTION)

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        return Sampled(self.ids, [-1.0] * len(self.ids), "stop")


class InstantPartner(Partner):
    identity: ClassVar[dict[str, Any]] = {"kind": "instant"}

    async def act(self, view: View) -> Turn:
        return Turn(ANSWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialogues", type=int, default=300)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    chat = Chat(train_tokenizer([QUESTION, ANSWER] * 9, 400))
    policy, partner = InstantPolicy(chat), InstantPartner()
    state = next(generate_games(1, MatchingSettings(n=8)))

    async def play(turns: int) -> None:
        for index in range(options.dialogues):
            env = MatchingEnv(max_turns=turns)
            dialogue = Dialogue(str(index), "", 0, 0, state.to_dict(), {}, {})
            await Game(env, [dialogue], policy, partner, chat, Limits()).play()

    def game_alone(turns: int) -> None:
        for _ in range(options.dialogues):
            env = MatchingEnv(max_turns=turns)
            env.reset(state)
            for turn in range(turns):
                env.step(ANSWER if turn % 2 else QUESTION)

    asyncio.run(play(2))
    print(f"{'turns':>6} {'loop, µs per turn':>16} {'game alone':>12} {'ratio':>7}")
    for turns in (options.turns // 2, options.turns, 2 * options.turns):
        start = time.process_time()
        asyncio.run(play(turns))
        whole = (time.process_time() - start) / (options.dialogues * turns) * 1e6
        start = time.process_time()
        game_alone(turns)
        alone = (time.process_time() - start) / (options.dialogues * turns) * 1e6
        print(f"{turns:>6} {whole:>16.0f} {alone:>12.0f} {whole / alone:>7.1f}")


if __name__ == "__main__":
    main()
