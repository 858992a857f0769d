"""What is installed is no state of the user's, wherever it is installed: a venv may see the packages of another."""

import sys

import pytest

from tacit.isolation import guard


@pytest.mark.parametrize(("folder", "installed"), [("site-packages", True), ("dist-packages", True), ("mine", False)])
def test_a_package_is_installed_if_it_lies_in_a_folder_for_packages(tmp_path, monkeypatch, folder, installed):
    home = tmp_path / folder
    home.mkdir()
    name = f"somebodys_{folder.partition('-')[0]}"
    (home / f"{name}.py").write_text("seen = 0\n")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.delitem(sys.modules, name, raising=False)
    __import__(name)
    assert guard._is_installed(name) is installed
