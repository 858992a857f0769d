"""Archives and downloads (failure-modes F23)."""

import gzip
import hashlib

import pytest

from reliability.f23_archives import GOOD, MEMBER, SIZE, _server, entry, hostile, tar
from tacit.data.archives import check_digest, gunzip, read_at_most, untar
from tacit.data.download import fetch
from tacit.data.files import Original
from tacit.errors import InputError


def test_a_good_archive_is_read_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = tar((entry("folder/readme.html", 5), b"hello"), (entry(MEMBER), GOOD))
    assert untar(archive, {MEMBER: SIZE}, "x.tar.gz") == {MEMBER: GOOD}
    assert not list(tmp_path.iterdir())


def test_hostile_archives_are_refused(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    archives = hostile(tmp_path)
    del archives["link, then a file through it"]  # the link is left alone, the file beside it is good
    assert len(archives) >= 12
    for data in archives.values():
        with pytest.raises(InputError, match=r"x\.tar\.gz"):
            untar(data, {MEMBER: SIZE}, "x.tar.gz")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_a_bomb_stops_at_the_cap():
    assert gunzip(gzip.compress(bytes(100)), 100, "x") == bytes(100)
    with pytest.raises(InputError, match="more than 100 bytes"):
        gunzip(gzip.compress(bytes(1 << 24)), 100, "x")


def test_digests_and_sizes(tmp_path):
    check_digest(b"x", hashlib.sha256(b"x").hexdigest(), "x")
    check_digest(b"x", hashlib.md5(b"x").hexdigest(), "x")
    with pytest.raises(InputError, match="its md5 differs"):
        check_digest(b"y", hashlib.md5(b"x").hexdigest(), "x")
    (tmp_path / "file").write_bytes(bytes(10))
    with pytest.raises(InputError, match="larger than 9 bytes"):
        read_at_most(tmp_path / "file", 9)


def test_a_file_is_fetched_once_checked_and_kept(tmp_path):
    data = b"original"
    with _server({"/data": data}) as place:
        urls = (f"{place}/missing", f"{place}/data")
        original = Original("data", hashlib.sha256(data).hexdigest(), 100, urls)
        with pytest.raises(InputError, match="download=True"):
            original.read(tmp_path / "set")
        assert original.read(tmp_path / "set", download=True) == data
    assert original.read(tmp_path / "set") == data  # the server is gone
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["data"]


@pytest.mark.parametrize("name", ["other", "long", "nothing"])
def test_what_is_not_the_original_is_not_kept(tmp_path, name):
    answers = {"/other": b"x" * 8, "/long": bytes(1000), "/nothing": b""}
    with _server(answers) as place, pytest.raises(InputError, match="could not be fetched"):
        fetch(tmp_path / "set" / "data", [f"{place}/{name}"], hashlib.sha256(b"original").hexdigest(), 100)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "nowhere"])
def test_only_the_web_is_asked(tmp_path, url):
    with pytest.raises(InputError, match="only http and https"):
        fetch(tmp_path / "x", [url], "0" * 64, 100)
