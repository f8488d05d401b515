"""What openenv.yaml promises of the reward, measured on a running server: slim_rl's own references and cheats play its games.

    the ideal asker earns the most in every game, less reward.oracle_tolerance
    the solo plan, the random plan and each cheat, which ask nothing or ask in vain, on average stay reward.floor_margin below the most

Each player reads what its seat reads, and no more. Its words are worked out here, on the same deals, and then said to the server.
`--write` also keeps the cheats' words in the first game, and what they earned, as canaries.json.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from slim_rl_openenv import GameAction, GameClient

from slim_rl.environment import environment_class
from slim_rl.measured import measured
from slim_rl.session import Games

FOLDER = Path(__file__).resolve().parents[1]
CANARIES = FOLDER / "validation/canaries.json"
ORACLE, FLOOR = "ideal", ("solo", "random")


def players(games: Games) -> dict[str, Any]:
    """The oracle, the floor, and then the cheats."""
    game = measured(environment_class(games.config.environment))
    known = game.baselines(games.config.game)
    cheats = {one.name: one.player for one in game.scripted_players(games.config.game, (4,)) if one.against}
    return {name: known[name] for name in (ORACLE, *FLOOR)} | cheats


def words(games: Games, seed: int, player: Any) -> list[str]:
    """What a player says in the game of a seed."""
    (row,) = games.deal("train", 1, seed)
    (dialogue,) = asyncio.run(games.worker.play(games.worker.spec(row, "oracle"), policy=player))
    return [turn.text for turn in dialogue.turns if turn.role == "policy"]


def earned(client: Any, seed: int, said: list[str]) -> float:
    """The server's reward for these words in the game of a seed."""
    seen = client.reset(seed=seed)
    for text in said:
        seen = client.step(GameAction(text=text))
    if not seen.done or seen.reward is None:
        raise SystemExit(
            f"The game of seed {seed} has no reward: is the server's game another than {FOLDER}/server/game.yaml?"
        )
    return float(seen.reward)


def broken(found: dict[str, list[float]]) -> Iterator[str]:
    """The promises of openenv.yaml that these rewards break, a sentence each."""
    promised = yaml.safe_load((FOLDER / "openenv.yaml").read_text(encoding="utf-8"))["validation"]["reward"]
    best, most = promised["range"][1] - promised["oracle_tolerance"], promised["range"][1] - promised["floor_margin"]
    if min(found[ORACLE]) < best:
        yield f"The oracle earned {min(found[ORACLE]):.3f} in a game: oracle_tolerance promises {best:g}."
    for name in found.keys() - {ORACLE}:
        if mean(found[name]) > most:
            yield f"{name} earned {mean(found[name]):.3f} on average: floor_margin promises {most:g} at most."


def main() -> None:
    """Prints what each player earned. Exits with 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--games", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    games = Games(FOLDER / "server/game.yaml")
    found: dict[str, list[float]] = {}
    canaries = []
    with GameClient(given.url).sync() as client:
        for name, player in players(games).items():
            said = [words(games, seed, player) for seed in range(given.games)]
            found[name] = [earned(client, seed, each) for seed, each in enumerate(said)]
            print(f"{name:34} mean {mean(found[name]):.3f}  least {min(found[name]):.3f}  most {max(found[name]):.3f}")
            if name not in (ORACLE, *FLOOR):
                actions = [{"text": text} for text in said[0]]
                canaries.append({"name": name, "reset": {"seed": 0}, "actions": actions, "reward": found[name][0]})
    if given.write:
        CANARIES.write_text(json.dumps(canaries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit("\n".join(broken(found)) or None)


if __name__ == "__main__":
    main()
