"""Checkpoints of a model in shards: every rank writes its own, and any number of ranks can go on from them.

``torch.distributed.checkpoint`` writes the tensors into a folder, and rank 0 the small file that names it last, so that
there is the old checkpoint or the new one. No key is ever among them: whoever goes on draws fresh ones.
"""

import shutil
from pathlib import Path
from typing import Any

from torch.utils._pytree import tree_leaves, tree_map

from tacit.distributed.ranks import Ranks, is_sharded


def holds_shards(content: Any) -> bool:
    return is_sharded(tree_leaves(content))


def folder_of(path: Path, step: int) -> Path:
    """Where the shards lie that belong to a checkpoint after so many steps."""
    return path.with_name(f"{path.name}.shards-{step}")


def write_shards(ranks: Ranks, path: Path, step: int, content: Any) -> None:
    """All ranks together; returns when every shard is on disk."""
    from torch.distributed.checkpoint.state_dict_saver import save  # takes a second to load

    ranks.together(lambda: save({"content": content}, checkpoint_id=folder_of(path, step), no_dist=ranks.alone))


def read_shards(ranks: Ranks, path: Path, step: int, like: Any) -> Any:
    """The content with the values of the checkpoint, in shards as ``like`` has them now; ``like`` is not changed."""
    from torch.distributed.checkpoint.state_dict_loader import load

    state = {"content": tree_map(lambda leaf: leaf.detach().clone() if is_sharded([leaf]) else leaf, like)}
    ranks.together(lambda: load(state, checkpoint_id=folder_of(path, step), no_dist=ranks.alone))
    return state["content"]


def forget_others(path: Path, step: int) -> None:
    """Remove the shards that no checkpoint names any more."""
    for folder in path.parent.glob(f"{path.name}.shards-*"):
        if folder != folder_of(path, step):
            shutil.rmtree(folder, ignore_errors=True)
