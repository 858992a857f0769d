"""Where chance comes from: cryptographic by default, seeded for tests only (which marks the run)."""

from tacit.randomness.records import RecordChance, global_chance, seed_everything
from tacit.randomness.streams import Randomness

__all__ = ["Randomness", "RecordChance", "global_chance", "seed_everything"]
