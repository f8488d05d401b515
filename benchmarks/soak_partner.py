"""Thousands of dialogues with the chat partner against a server on loopback that fails in every way an API can.

    python benchmarks/soak_partner.py [--dialogues 10000] [--fault-rate 0.2] [--odd-rate 0.1] [--concurrency 256] [--out runs/soak]

Faults are responses that fail, too large and compressed ones among them; odd answers are good ones with half a character in the text
or with no usage or a senseless one; and the key is revoked for a while (a minute in 10,000 dialogues). Prints the outcome of the
dialogues, memory at 10, 50 and 100%, and the makespan beside the ideal: the same dialogues, each as long as what the server drew for
it (latencies, requests that were never answered, pauses it asked for), packed on as many slots, with no time spent on anything else
but the wait for the key. After Ctrl-C, the same command plays the missing dialogues.
"""

import argparse
import asyncio
import heapq
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
from soak_server import ODD  # noqa: E402

from slim_rl.config import OpenAIConfig, PartnerConfig, parse_config  # noqa: E402
from slim_rl.dialogue.chat import Chat  # noqa: E402
from slim_rl.dialogue.games_file import GameRow  # noqa: E402
from slim_rl.dialogue.log import DialogueLog, read_log  # noqa: E402
from slim_rl.dialogue.players import Policy, Sampled  # noqa: E402
from slim_rl.dialogue.record import StopReason  # noqa: E402
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker  # noqa: E402
from slim_rl.games.matching.actions import format_proposal  # noqa: E402
from slim_rl.games.matching.generate import generate_games  # noqa: E402
from slim_rl.games.matching.partners.chat import MatchingChatPartner  # noqa: E402
from slim_rl.games.matching.state import GameState, MatchingSettings  # noqa: E402
from slim_rl.lab.warmstart.tokenizer import train_tokenizer  # noqa: E402

GROUP = 8  # dialogues of one game
TIMEOUT = 5.0  # a request times out after this many median latencies


class Asker(Policy):
    """Instant policy that asks one to three questions and proposes, depending on the dialogue's key alone."""

    identity = {"engine": "soak"}  # noqa: RUF012

    def __init__(self, chat: Chat, game: GameState, key: str) -> None:
        rng = random.Random(key)
        names = [
            (rng.choice(game.roster.reviewers), rng.choice(game.roster.short_papers)) for _ in range(rng.randint(1, 3))
        ]
        plan = format_proposal(rng.sample(range(game.n), game.n), game.roster)
        self.turns = iter([*(f"[message] What is your score for {r} on {p}?" for r, p in names), plan])
        self.chat = chat

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        ids = [*self.chat.tokenizer.encode(next(self.turns), add_special_tokens=False), self.chat.end_id]
        return Sampled(ids, [-1.0] * len(ids), "stop")


async def soak(options: argparse.Namespace, url: str, chat: Chat) -> dict[str, Any]:
    """Plays the dialogues that are not in the log yet. Returns what was measured on the way."""
    path = options.out / "dialogues.jsonl"
    done = {dialogue.id for dialogue in read_log(path)} if path.exists() else set()
    # Dialogue i belongs to game i // GROUP; a few dozen boards serve them all.
    boards = list(generate_games(min(50, -(-options.dialogues // GROUP)), MatchingSettings(), seed=0))
    todo = [number for number in range(options.dialogues) if f"soak-{number}" not in done]
    settings = OpenAIConfig(
        base_url=url,
        concurrency=options.concurrency,
        request_seconds=TIMEOUT * options.latency,
        turn_seconds=120.0,
    )
    partner = MatchingChatPartner.from_config(PartnerConfig(kind="openai", openai=settings))
    rollouts = RolloutWorker(parse_config({"limits": {"turn_tokens": 4096}}), chat, partner=partner)
    process = psutil.Process()
    memory: dict[int, float] = {}
    escaped: list[str] = []
    finished = 0
    order: list[int] = []

    async def worker(numbers: Iterator[int]) -> None:
        nonlocal finished
        for number in numbers:
            order.append(number)
            game = boards[number // GROUP % len(boards)]
            row = GameRow(f"board-{number // GROUP}", 0, game.to_dict(), [])
            spec = DialogueSpec(row, f"soak-{number}", seed=number, group=row.game_id)
            (dialogue,) = await rollouts.play(spec, policy=Asker(chat, game, spec.id))
            if dialogue.stop_reason is StopReason.BROKEN:  # an exception escaped: the very thing that must not happen
                escaped.append(str(dialogue.failure))
            log.append(dialogue)
            finished += 1
            for percent in (10, 50, 100):
                if percent not in memory and finished * 100 >= percent * len(todo):
                    memory[percent] = process.memory_info().rss / 2**20

    started, cpu, queued = time.monotonic(), time.process_time(), _queued_seconds()
    with DialogueLog(path) as log:
        numbers = iter(todo)
        await asyncio.gather(*(worker(numbers) for _ in range(options.concurrency)))
    return {
        "played": len(todo),
        "order": order,
        "escaped": escaped,
        "memory": memory,
        "seconds": time.monotonic() - started,
        "cpu": time.process_time() - cpu,
        "queued": _queued_seconds() - queued,
        "usage": partner.endpoint.spend.total,
    }


def _queued_seconds() -> float:
    """Returns the seconds that this process was ready to run but had no core."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def ideal_seconds(lengths: Sequence[float], slots: int) -> float:
    """Returns the makespan of dialogues of these lengths, started in this order as slots become free."""
    ends = [0.0] * slots
    for length in lengths:
        heapq.heappush(ends, heapq.heappop(ends) + length)
    return max(ends)


def report(options: argparse.Namespace, measured: dict[str, Any], tally: dict[str, Any]) -> None:
    """Prints the table."""
    games: dict[str, dict[str, float]] = tally["games"]
    kinds: Counter[str] = Counter()
    for game in games.values():
        kinds.update({kind: int(count) for kind, count in game.items() if kind not in ("seconds", "retry_after")})
    requests = sum(kinds.values())
    answered = sum(kinds[kind] for kind in ("answer", *ODD))
    lengths = [_length(games.get(str(number), {}), TIMEOUT * options.latency) for number in measured["order"]]
    revoked = options.revoked if measured["seconds"] > options.revoked else 0.0
    ideal = ideal_seconds(lengths, options.concurrency) + revoked
    reasons: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for dialogue in read_log(options.out / "dialogues.jsonl"):
        reasons[str(dialogue.stop_reason)] += 1
        lost[dialogue.group] += dialogue.failed
    tries = OpenAIConfig().max_retries + 1
    seconds, usage = measured["seconds"], measured["usage"]
    played, cpu = max(1, measured["played"]), measured["cpu"]
    expected = usage.calls * options.fault_rate**tries
    memory = ", ".join(f"{percent}% {value:.0f} MiB" for percent, value in sorted(measured["memory"].items()))
    rows = [
        ("dialogues in the log", f"{sum(reasons.values())} of {options.dialogues}"),
        *((f"  {reason}", str(count)) for reason, count in reasons.most_common()),
        ("exceptions escaped", str(len(measured["escaped"]))),
        ("dialogues lost", f"{sum(lost.values())} (expected of {tries} tries per request: {expected:.2f})"),
        (
            "groups that lost any",
            f"{sum(n > 0 for n in lost.values())} of {len(lost)}; at most {max(lost.values(), default=0)} of {GROUP}",
        ),
        ("requests", f"{requests}, of them faulty {1 - answered / max(1, requests):.1%}"),
        *((f"  {kind}", str(count)) for kind, count in kinds.most_common()),
        ("refused while the key was revoked", f"{tally['refused']} in {revoked:.0f} s"),
        (
            "answers whose tokens were estimated",
            f"{usage.estimated}; tokens in all {usage.input_tokens + usage.output_tokens}",
        ),
        ("answered / made again", f"{usage.calls} / {usage.retries}"),
        ("most requests at once", str(tally["busiest"])),
        ("memory", memory),
        ("makespan", f"{seconds:.1f} s"),
        ("ideal", f"{ideal:.1f} s"),
        ("makespan / ideal", f"{seconds / ideal:.3f}" if ideal else "-"),
        (
            "processor time",
            f"{cpu:.1f} s ({1000 * cpu / played:.1f} ms per dialogue)",
        ),
        ("waited for a core", f"{measured['queued']:.1f} s"),
    ]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in rows))
    for error in measured["escaped"][:5]:
        print("escaped:", error)


def _length(game: dict[str, float], request_seconds: float) -> float:
    """Returns the unavoidable seconds of a dialogue."""
    return game.get("seconds", 0.0) + game.get("retry_after", 0.0) + game.get("hang", 0) * request_seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dialogues", type=int, default=10_000)
    parser.add_argument("--fault-rate", type=float, default=0.2)
    parser.add_argument("--odd-rate", type=float, default=0.1)
    parser.add_argument("--revoked", type=float, help="seconds; a minute in 10,000 dialogues, 0 without faults")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--latency", type=float, default=2.5, help="median seconds of an answer")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    options = parser.parse_args()
    if options.revoked is None:
        options.revoked = min(60.0, 2.0 + options.dialogues * 0.006) if options.fault_rate else 0.0
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = [
        "[message] What is your score for Ava Li on BLEU?",
        "[propose]\nBLEU: Ava Li",
        "Answer with [accept] or [reject]. 0123456789",
    ]
    chat = Chat(train_tokenizer(corpus * 8, vocab_size=400))
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "soak_server.py"), "--latency", str(options.latency), "--spread", "0.4",
         "--fault-rate", str(options.fault_rate), "--odd-rate", str(options.odd_rate),
         "--revoked", str(options.revoked), str(options.revoked)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        measured = asyncio.run(soak(options, url, chat))
        with urllib.request.urlopen(url.removesuffix("/v1") + "/tally") as answer:
            report(options, measured, json.load(answer))
    except KeyboardInterrupt:
        print("Interrupted. The log is complete; run the same command to continue.", file=sys.stderr)
        return 130
    finally:
        server.kill()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
