"""Dialogues: chat-template token boundaries, the turn loop, the record."""

from slim_rl.dialogue.record import Dialogue, StopReason, Turn

__all__ = ["Dialogue", "StopReason", "Turn"]
