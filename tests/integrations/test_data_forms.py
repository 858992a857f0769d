"""The forms in which other libraries hold data, as the data of a private loop."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit

X = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int64")


def of_pair(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def of_names(model, batch):
    return of_pair(model, (batch["x"], batch["y"]))


def hugging_face(form):
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    return datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).with_format(form)


def parquet(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    path = str(tmp_path / "table.parquet")
    hugging_face(None).to_parquet(path)
    found = datasets.load_dataset("parquet", data_files=path, cache_dir=str(tmp_path / "cache"))
    return found["train"].with_format("torch")


def frame(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    table = pandas.DataFrame(X, columns=list("abcd")).assign(y=Y)
    return table[list("abcd")], table["y"]


def encoding(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra huggingface")
    return transformers.BatchEncoding({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)})


FORMS = {
    "datasets, torch": (lambda tmp_path: hugging_face("torch"), of_names),
    "datasets, numpy": (lambda tmp_path: hugging_face("numpy"), of_names),
    "parquet": (parquet, of_names),
    "pandas": (frame, of_pair),
    "BatchEncoding": (encoding, of_names),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_private_loop_takes_it(tmp_path, form):
    make, losses = FORMS[form]
    model = nn.Linear(4, 2)
    plan = tacit.PoissonSampling(1.0, 200), tacit.ClipRecords(1.0), tacit.GaussianNoise(stddev=1e-300)
    found = []
    for rows, function in ((make(tmp_path), losses), ((X, Y), of_pair)):
        with tacit.PrivateGradient(model, function, *plan, ledger=tmp_path / f"{len(found)}.jsonl") as private:
            model.zero_grad()
            for sample in private.samples(rows, 1):
                private.backward(sample)
        found.append(model.weight.grad.clone())
    assert torch.allclose(*found, rtol=0, atol=1e-6)


def test_a_stream_is_refused_by_what_to_use_instead():
    with pytest.raises(tacit.InputError, match="without streaming"):
        tacit.DataSource(hugging_face(None).to_iterable_dataset())
