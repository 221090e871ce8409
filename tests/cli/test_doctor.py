"""`verify` and `doctor`: whether the journal is what was written, and what it is."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from tests.cli.lab import Lab


def tamper(beforehand: Lab, statement: str) -> None:
    with closing(sqlite3.connect(beforehand.journal)) as database:
        triggers = database.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        for trigger, _ in triggers:
            database.execute(f"drop trigger {trigger}")
        assert database.execute(statement).rowcount > 0
        for _, sql in triggers:
            database.execute(sql)
        database.commit()


def test_chains_that_hold(asking: Lab):
    asking("signal", "ticket-1", "approved")
    said = asking("verify")
    assert said.status == 0
    assert said.out.startswith("All chains are intact: 1 run, ")
    found = asking("verify", "--json").json
    assert (found["runs"], found["broken"]) == (1, [])
    assert found["streams"] >= 1


def test_a_run_that_a_command_made_due_is_whole(asking: Lab):
    asking("cancel", "ticket-1")
    assert asking("ps", "--json").json["runs"][0]["ready"]
    said = asking("verify")
    assert (said.status, said.out[:21]) == (0, "All chains are intact")


def test_a_changed_record_is_named(asking: Lab):
    asking("run", "desk.py:desk", asking.ticket("2"))
    tamper(
        asking,
        "update record set content = replace(content, 'within policy', 'because') where body like '%within policy%' and run = 2",
    )
    said = asking("verify", "--json")
    assert said.status == 4
    (broken,) = said.json["broken"]
    assert broken["chain"] == "run ticket-2"
    assert broken["why"] == "it was changed, removed or moved after it was written"
    record = asking("show", "ticket-2", "--at", str(broken["record"]), "--json").json
    assert record["step"] == "rule#1"
    assert "run ticket-2, record" in asking("verify").out


def test_a_removed_record_is_noticed(asking: Lab):
    tamper(asking, "delete from record where seq = 3")
    said = asking("verify", "--json")
    assert said.status == 4
    assert said.json["broken"][0]["record"] == 3


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("delete from record where id = (select max(id) from record)", "records"),
        ("delete from ledger where id = (select max(id) from ledger)", "ledger entries"),
    ],
)
def test_an_end_that_only_the_anchor_remembers_is_damage(asking: Lab, statement: str, what: str):
    asking("signal", "ticket-1", "approved")
    tamper(asking, statement)
    said = asking("verify", "--json")
    assert said.status == 4
    assert [broken["chain"] for broken in said.json["broken"]] == ["the end of the journal"]
    said = asking("verify")
    assert said.status == 4
    assert f"{what}, and this file ends at" in said.out


@pytest.mark.parametrize("anchored", [True, False])
def test_an_end_that_the_listing_and_the_counters_remember_is_not_mended_by_rebuilding(asking: Lab, anchored: bool):
    """The records that they were computed from are gone: computed anew, a run that has ended would go on."""
    (asking.directory / "queues.yaml").write_text("budgets:\n  support: {agent: desk, model_calls: 9}\n")
    (asking.directory / "pyproject.toml").write_text('[tool.beforehand]\nqueues = "queues.yaml"\n')
    assert asking("run", "desk.py:desk", asking.ticket("2")).status == 0
    assert asking("verify").status == 0
    end = "(select max(seq) - 9 from record where run = 2)"
    tamper(asking, f"delete from record where run = 2 and seq > {end}")
    if not anchored:
        asking.journal.with_name("beforehand.db.anchor").unlink()
    said = asking("verify")
    assert said.status == 4
    assert "the listing of ticket-2, number 0: it says completed, and the records say " in said.out
    assert "restore a backup that has them" in said.out
    assert "doctor --rebuild" not in said.out


def test_a_counter_that_has_more_than_the_records_is_not_mended_by_rebuilding(asking: Lab):
    (asking.directory / "queues.yaml").write_text("budgets:\n  support: {agent: desk, model_calls: 9}\n")
    (asking.directory / "pyproject.toml").write_text('[tool.beforehand]\nqueues = "queues.yaml"\n')
    assert asking("run", "desk.py:desk", asking.ticket("2")).status == 0
    tamper(
        asking,
        "update cell set body = json_array(json_extract(body, '$[0]') + 1, json_extract(body, '$[1]')) where kind = 'counter' and key = 'model_calls'",
    )
    said = asking("verify")
    assert (said.status, "restore a backup that has them" in said.out, "--rebuild" in said.out) == (4, True, False)


def test_a_line_of_the_listing_that_hides_a_run_is_mended_by_rebuilding_unless_the_end_was_cut(asking: Lab):
    tamper(asking, "update run set waits = '[]'")
    assert "mend it: beforehand doctor --rebuild" in asking("verify").out
    asking("signal", "ticket-1", "approved")
    tamper(asking, "delete from ledger where id = (select max(id) from ledger)")
    said = asking("verify")
    assert "it does not say what the run waits for; records" in said.out
    assert "--rebuild" not in said.out


def test_a_changed_order_is_noticed(asking: Lab):
    asking("resolve", "ticket-1/restock#1", "--happened", "--by", "bea")
    tamper(asking, "update ledger set body = replace(body, 'bea', 'eve') where body like '%bea%'")
    said = asking("verify", "--json")
    assert said.status == 4
    assert said.json["broken"][0]["chain"] == "ledger run/ticket-1"


KEY = "0123456789abcdef0123456789abcdef"


def test_heads_that_were_kept_show_what_the_anchor_cannot(asking: Lab):
    asking("signal", "ticket-1", "approved")
    kept = asking.directory / "kept.heads"
    kept.write_text(asking("heads").out)
    assert (asking.journal.with_name("beforehand.db.headkeys").stat().st_mode & 0o777) == 0o600
    asking("signal", "ticket-1", "checked")
    kept.write_text(kept.read_text() + asking("heads").out)
    said = asking("verify", "--heads", "kept.heads")
    assert (said.status, "2 heads" in said.out) == (0, True)
    tamper(asking, "delete from ledger where id = (select max(id) from ledger)")
    asking.journal.with_name("beforehand.db.anchor").unlink()
    assert asking("verify").status == 0, "nothing in the file remembers its end"
    said = asking("verify", "--heads", "kept.heads")
    known = json.loads(kept.read_text().splitlines()[1])["head"]["entries"]
    assert said.status == 4
    assert f"line 2, has {known} ledger entries, and this file ends at {known - 1}" in said.out


def test_a_rewritten_past_is_narrowed_down_by_the_heads(asking: Lab):
    kept = asking.directory / "kept.heads"
    lines = []
    for event in ("one", "two", "three"):
        asking("signal", "ticket-1", event)
        lines.append(asking("heads").out)
    kept.write_text("".join(lines))
    first, second, _ = (json.loads(line)["head"]["entries"] for line in lines)
    tamper(asking, f"update ledger set hash = zeroblob(32) where id = {second}")
    asking.journal.with_name("beforehand.db.anchor").unlink()
    found = asking("verify", "--heads", "kept.heads", "--json").json["broken"]
    (log,) = [one for one in found if one["chain"] == "the log of ledger entries"]
    assert log["record"] == first + 1
    assert f"what stands between {first + 1} and {second} is not what the head of" in log["why"]


def test_a_head_is_signed_with_the_key_that_is_given_and_a_forged_one_is_named(asking: Lab):
    key = {"BEFOREHAND_HEAD_KEY": KEY}
    kept = asking.directory / "kept.heads"
    head = asking("heads", **key).json
    assert not asking.journal.with_name("beforehand.db.headkeys").exists()
    kept.write_text(json.dumps(head) + "\n")
    assert asking("verify", "--heads", "kept.heads", **key).status == 0
    unchecked = asking("verify", "--heads", "kept.heads")
    assert (unchecked.status, "signatures of the heads were not checked" in unchecked.err) == (0, True)
    forged = {**head, "at_ms": head["at_ms"] + 1}
    for line in (forged, {**forged, "key": "other"}, {**head, "signature": ""}):
        kept.write_text(json.dumps(line))
        said = asking("verify", "--heads", "kept.heads", **key)
        assert (said.status, "the kept heads, number 1: its signature" in said.out) == (4, True)
    rotated = {"BEFOREHAND_HEAD_KEY": f"{KEY[::-1]}, {KEY}"}
    kept.write_text(json.dumps(head))
    assert asking("verify", "--heads", "kept.heads", **rotated).status == 0
    assert asking("heads", BEFOREHAND_HEAD_KEY="short").status == 2


@pytest.mark.parametrize("text", ["", "no head\n", "{}\n", "\xff\xfe", '{"namespace":"other","head":{}}\n'])
def test_a_file_without_heads_is_refused(asking: Lab, text: str):
    (asking.directory / "kept.heads").write_bytes(text.encode("latin-1"))
    assert asking("verify", "--heads", "kept.heads").status == 2


def test_heads_of_other_journals_are_passed_over(asking: Lab):
    head = asking("heads").json
    other = {**head, "namespace": "other"}
    kept = asking.directory / "kept.heads"
    kept.write_text(f"{json.dumps(other)}\n{json.dumps(head)}\n")
    said = asking("verify", "--heads", "kept.heads", "--json")
    assert (said.status, said.json["heads"], said.json["signatures"]) == (0, 1, 1)
    kept.write_text(json.dumps(other))
    said = asking("verify", "--heads", "kept.heads")
    assert (said.status, "has no head of this journal" in said.err) == (2, True)


def test_a_journal_that_is_not_trusted_has_no_head(asking: Lab):
    asking.journal.with_name("beforehand.db.anchor").unlink()
    said = asking("heads")
    assert (said.status, said.out, "beforehand doctor" in said.err) == (3, "", True)
    assert not asking.journal.with_name("beforehand.db.headkeys").exists()
    asking("doctor", "--trust", "ann", "--newest")
    assert asking("heads").status == 0


def test_a_removed_entry_is_found_at_open_and_can_be_gone_on_without(asking: Lab):
    for event in ("one", "two"):
        asking("signal", "ticket-1", event)
    tamper(asking, "delete from ledger where id = 1")
    doctor = asking("doctor")
    assert (
        "distrustful: 1 of its records or ledger entries were removed: `beforehand verify` names them" in doctor.words
    )
    assert asking("verify").status == 4
    asking("doctor", "--trust", "ann")
    assert asking("doctor", "--json").json["journal"]["trust"] == "doubtful"
    said = asking("verify")
    assert (said.status, "the log of ledger entries, number 1: it was removed" in said.out) == (4, True)


def test_a_record_that_is_no_record_is_noticed(asking: Lab):
    tamper(asking, 'update record set at = null, content = \'{"kind":"Nonsense"}\' where seq = 4')
    assert asking("verify", "--json").json["broken"][0]["record"] == 4


def test_the_doctor_knows_the_journal(asking: Lab):
    asking("run", "desk.py:desk", asking.ticket("2"))
    found = asking("doctor", "--json").json["journal"]
    assert found["path"] == str(asking.journal)
    assert found["sqlite"] == sqlite3.sqlite_version
    assert (found["mode"], found["trust"]) == ("wal", "trusted")
    assert found["runs"] == {"completed": 1, "suspended": 1}
    assert found["open_operations"] == ["ticket-1/restock#1"]
    said = asking("doctor")
    assert "1 completed, 1 suspended" in said.out
    assert "ticket-1/restock#1" in said.out


def test_the_doctor_names_runs_that_nobody_drives(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("doctor", "--json").json["journal"]["abandoned"] == ["ticket-1"]


def test_the_listing_is_rebuilt_from_the_records(asking: Lab):
    asking("run", "desk.py:desk", asking.ticket("2"))
    asking("run", "desk.py:desk", asking.ticket("3", mode="boom"))
    before = asking("ps", "--json").json["runs"]
    tamper(asking, "update run set status = 'running', reason = 'nonsense', waits = '[]'")
    said = asking("doctor", "--rebuild", "--json")
    assert said.json["rebuilt"] == {
        "runs": 3,
        "changed": ["ticket-1", "ticket-2", "ticket-3"],
        "busy": [],
        "counters": [],
    }
    after = asking("ps", "--json").json["runs"]
    for one, other in zip(before, after, strict=True):
        assert (one["status"], one["reason"]) == (other["status"], other["reason"])
        assert [wait["step"] for wait in one["waits"]] == [wait["step"] for wait in other["waits"]]
    assert asking("doctor", "--rebuild", "--json").json["rebuilt"]["changed"] == []
    assert asking("verify").status == 0


def test_a_copy_sends_nothing_until_somebody_vouches_for_it(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    shutil.copy(beforehand.journal, beforehand.directory / "copy.db")
    copy = {"BEFOREHAND_JOURNAL": "copy.db"}
    said = beforehand("run", "desk.py:desk", beforehand.ticket("2"), **copy)
    assert said.status == 3
    assert said.err.startswith("JournalDistrusted: this journal looks copied, rolled back or restored")
    assert "Next: find out which file is the newest; then: beforehand doctor --trust NAME" in said.err
    assert len(beforehand.world) == 2
    listed = beforehand("ps", **copy)
    assert listed.err.startswith("This journal is not trusted: ")
    assert "not trusted" not in beforehand("ps", "--json", **copy).err
    found = beforehand("doctor", **copy)
    assert "distrustful" in found.out
    assert "beforehand doctor --trust NAME" in found.out
    assert beforehand("doctor", "--trust", "bea", **copy).lines[-1] == "The journal is doubtful now."
    assert beforehand("doctor", "--json", **copy).json["journal"]["trust"] == "doubtful"


def test_a_copy_that_is_known_to_be_the_newest_is_trusted_as_it_is(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    shutil.copy(beforehand.journal, beforehand.directory / "copy.db")
    copy = {"BEFOREHAND_JOURNAL": "copy.db"}
    assert beforehand("doctor", "--trust", "bea", "--newest", **copy).lines[-1] == "The journal is trusted now."
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2"), **copy).status == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["--trust", "bea"], "this journal is trusted already"), (["--newest"], "--newest needs --trust")],
)
def test_there_is_nothing_to_vouch_for(asking: Lab, arguments: list[str], problem: str):
    said = asking("doctor", *arguments)
    assert said.status == 2
    assert problem in said.err


def test_a_file_that_is_no_journal(beforehand: Lab):
    with closing(sqlite3.connect(beforehand.directory / "other.db")) as database:
        database.execute("create table t (x)")
    said = beforehand("ps", "--journal", "other.db")
    assert said.status == 1
    assert "is a SQLite database, but not a Beforehand journal" in said.err


def test_commands_to_queues_are_entries_that_can_be_read(asking: Lab):
    for word in ("pause", "resume"):
        assert asking("queues", word, "default").status == 0
    assert "refused       no ledger entry" in asking("doctor").out


def test_a_command_to_a_file_that_is_no_journal_says_so(beforehand: Lab):
    beforehand.write("other.db", "garbage")
    for words in (("queues", "pause", "default"), ("cancel", "x"), ("monitors", "pass")):
        said = beforehand(*words, "--journal", "other.db")
        assert (said.status, "JournalUnavailable" in said.err, "Traceback" in said.err) == (1, True, False), said.err
