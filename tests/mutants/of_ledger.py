"""Bugs of charging, of the file and of checkpoints (F10, F11, F12, F14, F21)."""

import json
import os
from dataclasses import replace

from tacit.accountants import budget as gate
from tacit.ledger import Head, chain, file
from tacit.mechanisms.gaussian_sum import UNCLIPPED, GaussianSumMechanism
from tacit.sampling import PoissonSampling
from tacit.storage.append_only import FileStorage
from tacit.training import checkpoints, plan
from tacit.training.charging import Charging
from tacit.training.private_sum import PrivateSum
from tacit.training.reading.samples import Outstanding
from tests.mutants.mutant import Mutant, swap

REAL_CHARGES = Charging.charges
REAL_SETTLE = Charging.settle
REAL_RESERVE = Charging.reserve
REAL_DECLARE = Charging.declare
REAL_CHECKPOINT = PrivateSum.checkpoint
REAL_SAVE = checkpoints.save
REAL_EVENT = PoissonSampling.event
REAL_GATE = gate.BudgetGate.__call__
QUERIES = GaussianSumMechanism.queries
REAL_FOLLOW = chain.Chain.follow


def without_heads(self, parts, *heads):
    return REAL_FOLLOW(self, parts)


def fewer_charges(self, mechanisms):
    return [replace(charge, steps=charge.steps - (charge.steps + 9) // 10) for charge in REAL_CHARGES(self, mechanisms)]


class Fewer:
    """Blocks of which fewer steps have begun than really have."""

    def __init__(self, ahead, change):
        self.begun = lambda: {number: change(steps) for number, steps in ahead.begun().items()}


def half_settled(self, ahead):
    REAL_SETTLE(self, Fewer(ahead, lambda steps: steps // 2))


def one_less_settled(self, ahead):
    REAL_SETTLE(self, Fewer(ahead, lambda steps: max(0, steps - 1)))


def drawn_before_the_charge(self, units, first, steps, ahead):
    """Two lines in the wrong order: a step is drawn, then its block is charged."""
    draws, size = self.plan.sampling.draws(units, self._randomness), self.plan.block
    for step in range(steps):
        drawn = next(draws)
        if step % size == 0:
            self._charging.reserve_block(first + step, steps - step, ahead)
        yield drawn


def handed_out_before_the_charge(self, units, first, steps, ahead):
    """The same with the sample handed out in between, for which no mechanism is there yet."""
    draws, size = self.plan.sampling.draws(units, self._randomness), self.plan.block
    for step in range(steps):
        yield next(draws)
        if step % size == 0:
            self._charging.reserve_block(first + step, steps - step, ahead)


def first_group_only(self):
    return QUERIES.fget(self)[:1]


def charge_behind(self, units, first, steps, ahead):
    """A block is charged when its last step has been drawn."""
    draws, size = self.plan.sampling.draws(units, self._randomness), self.plan.block
    for step in range(steps):
        ahead.mechanisms[first + step] = self._charging.mechanism_at(first + step)
        yield next(draws)
        if (step + 1) % size == 0 or step == steps - 1:
            ahead.charge(self._charging.reserve(first + step, min(size, steps))[0], min(size, steps))


def nothing_after_a_resume(self, step, count):
    if getattr(self, "_went_on", False):
        return REAL_RESERVE(self, step, 1)[0], [self.mechanism_at(step + ahead) for ahead in range(count)]
    return REAL_RESERVE(self, step, count)


def notice_resume(self, first, steps):
    if first:
        self._went_on = True
    REAL_DECLARE(self, first, steps)


def remember_size(self, units, first, steps, ahead):
    self.ledger_file._append({"record": "note", "units": units})
    yield from REAL_DRAW(self, units, first, steps, ahead)


REAL_DRAW = PrivateSum._draw_charged


LAST_KEY = {"key": ""}


def note_key(self, step, content):
    LAST_KEY["key"] = self._randomness._key.hex()
    return REAL_CHECKPOINT(self, step, content)


def save_with_key(tensors, metadata):
    return REAL_SAVE(tensors, {**metadata, **LAST_KEY})


def with_another_head(self, step, content):
    return replace(REAL_CHECKPOINT(self, step, content), head=Head(2, "1" * 64))


def without_sync(self, data):
    os.write(self._file, data)


def without_the_count(self):
    return tuple(query for query in QUERIES.fget(self) if query.group != UNCLIPPED)


def too_much_noise_stated(self):
    return tuple(replace(query, noise_stddev=2 * query.noise_stddev) for query in QUERIES.fget(self))


def too_little_clip_stated(self):
    return tuple(replace(query, clip_norm=query.clip_norm / 2) for query in QUERIES.fget(self))


def lower_rate_stated(self, queries):
    return replace(REAL_EVENT(self, queries), probability=self.probability / 2)


def gate_before_the_block(self, ledger, charges):
    """What is in the ledger must fit; the block to come is not looked at."""
    if ledger.steps:
        REAL_GATE(self, replace(ledger, charges=ledger.charges[:-1]), ledger.charges[-1:])


def forgetful_gate(self, ledger, charges):
    REAL_GATE(self, replace(ledger, charges=()), charges)


def trusting(line, previous, where):
    return json.loads(line)


def always_there(self, sample):
    return sample._drawn


def no_void(found, replay):
    return []


MUTANTS = [
    Mutant("every tenth step unrecorded", "F11", lambda: [swap(Charging, "charges", fewer_charges)],
           "audit: ledger"),
    Mutant("settled below the steps begun", "F11", lambda: [swap(Charging, "settle", half_settled)],
           "audit: ledger"),
    Mutant("settled at one step less", "F11", lambda: [swap(Charging, "settle", one_less_settled)],
           "audit: ledger", "more releases than the ledger was charged for"),
    Mutant("charged after the draw", "F11", lambda: [swap(PrivateSum, "_draw_charged", drawn_before_the_charge)],
           "audit: ledger", "units were drawn before their step was charged"),
    Mutant("handed out before the charge", "F11", lambda: [
        swap(PrivateSum, "_draw_charged", handed_out_before_the_charge)],
           "audit: ledger", "units were drawn before their step was charged"),
    Mutant("one group only is charged", "F14", lambda: [
        swap(GaussianSumMechanism, "queries", property(first_group_only))], "audit: ledger", "noise multiplier"),
    Mutant("slack of 0", "F6", lambda: [swap(plan, "SLACK", 0.0)], "audit: engine, rounding", "slack is 0"),
    Mutant("charged after the release", "F11", lambda: [swap(PrivateSum, "_draw_charged", charge_behind)],
           "audit: ledger"),
    Mutant("a resumed run charges one step a block", "F10", lambda: [
        swap(Charging, "reserve", nothing_after_a_resume), swap(Charging, "declare", notice_resume)],
        "audit: ledger"),
    Mutant("ledger not synced to disk", "F11", lambda: [swap(FileStorage, "append", without_sync)], "audit: ledger"),
    Mutant("the key in a checkpoint", "F9", lambda: [
        swap(PrivateSum, "checkpoint", note_key), swap(checkpoints, "save", save_with_key)], "audit: ledger"),
    Mutant("a checkpoint names another head", "F10", lambda: [swap(PrivateSum, "checkpoint", with_another_head)],
           "audit: ledger"),
    Mutant("adaptive clipping's count uncharged", "F14", lambda: [
        swap(GaussianSumMechanism, "queries", property(without_the_count))], "audit: ledger"),
    Mutant("twice the noise stated", "F8", lambda: [
        swap(GaussianSumMechanism, "queries", property(too_much_noise_stated))], "audit: noise"),
    Mutant("half the clip norm stated", "F6", lambda: [
        swap(GaussianSumMechanism, "queries", property(too_little_clip_stated))], "audit: replay"),
    Mutant("half the rate stated", "F2", lambda: [swap(PoissonSampling, "event", lower_rate_stated)],
           "audit: sampler"),
    Mutant("the number of records in the ledger", "F14", lambda: [swap(PrivateSum, "_draw_charged", remember_size)],
           "audit: replay"),
    Mutant("a sample may be released again", "F11", lambda: [swap(Outstanding, "take", always_there)],
           "audit: engine, releases", "a sample was released twice"),
    Mutant("a forked process may release", "F9", lambda: [swap(Outstanding, "check_process", lambda self: None)],
           "audit: engine, releases", "a forked process released"),
    Mutant("budget checked one block too late", "F12", lambda: [
        swap(gate.BudgetGate, "__call__", gate_before_the_block)], "audit: accountants"),
    Mutant("budget forgets earlier blocks", "F12", lambda: [swap(gate.BudgetGate, "__call__", forgetful_gate)],
           "audit: accountants"),
    Mutant("hashes not checked", "F21", lambda: [swap(chain, "_open_line", trusting)], "a changed ledger is found"),
    Mutant("head not checked", "F21", lambda: [swap(chain.Chain, "follow", without_heads)],
           "a shortened ledger is found"),
    Mutant("a torn line is not charged", "F11", lambda: [swap(file, "_void_records", no_void)],
           "a torn line is charged"),
]  # fmt: skip
