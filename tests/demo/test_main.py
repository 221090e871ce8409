"""`run_demo` as the command line calls it."""

from holdfast.demo.main import run_demo


def test_a_directory_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "holdfast.db").write_text("an earlier demo")
    assert run_demo(7, as_json=True, keep=tmp_path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "is not empty" in err
    assert (tmp_path / "holdfast.db").read_text() == "an earlier demo"
