"""Each deed and each role: the whole table, spelled again, so that a slip in one of the two is seen."""

from typing import get_args

import pytest

from beforehand.errors import NotAllowed
from beforehand.model.names import same_person
from beforehand_console.auth.authorize import (
    ROLES,
    Grant,
    Permission,
    PermissionScope,
    Principal,
    Role,
    check_answerer,
    check_permission,
    may,
    may_somewhere,
    typed,
)

DEEDS = get_args(Permission)
VIEWER = {"look"}
ANSWERER = {*VIEWER, "answer", "hand"}
OPERATOR = {*ANSWERER, "resolve", "stand", "order", "tell", "submit"}
ADMIN = {*OPERATOR, "tune", "administer"}
ALLOWED = {"submitter": {"submit"}, "viewer": VIEWER, "answerer": ANSWERER, "operator": OPERATOR, "admin": ADMIN}


def someone(*grants: Grant, limits: tuple[Grant, ...] = (), name: str = "ben") -> Principal:
    return Principal(name, grants, "password", limits)


def test_the_table_is_whole():
    assert set(DEEDS) == ADMIN
    assert set(ROLES) == set(ALLOWED)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("deed", DEEDS)
def test_each_deed_of_each_role(deed: Permission, role: Role):
    wanted = deed in ALLOWED[role]
    assert may(someone(Grant(role)), deed, "refund", "eu") is wanted
    assert may(someone(Grant(role)), deed) is wanted
    assert may_somewhere(someone(Grant(role)), deed) is wanted
    narrow = someone(Grant(role, ("refund",), ("eu",)))
    assert may(narrow, deed, "refund", "eu") is wanted
    assert may_somewhere(narrow, deed) is wanted


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize(
    ("tool", "queue"), [("", ""), ("refund", ""), ("", "eu"), ("restock", "eu"), ("refund", "us"), ("REFUND", "eu")]
)
def test_a_narrow_role_holds_nowhere_else(deed: Permission, tool: str, queue: str):
    assert not may(someone(Grant("operator", ("refund",), ("eu",))), deed, tool, queue)


@pytest.mark.parametrize("deed", DEEDS)
def test_nobody_may_nothing(deed: Permission):
    assert not may(someone(), deed)
    assert not may_somewhere(someone(), deed)


def test_roles_at_several_places_do_not_add_up():
    both = someone(Grant("answerer", ("refund",)), Grant("viewer", (), ("eu",)))
    assert may(both, "answer", "refund", "us")
    assert may(both, "look", "restock", "eu")
    assert not may(both, "answer", "restock", "eu"), "the role of one place is not that of the other"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("limit", ROLES)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_token_may_at_most_what_both_allow(deed: Permission, limit: Role, role: Role):
    shown = someone(Grant(role), limits=(Grant(limit),))
    assert may(shown, deed, "refund") is (deed in ALLOWED[role] & ALLOWED[limit])
    assert may_somewhere(shown, deed) is (deed in ALLOWED[role] & ALLOWED[limit])


def test_the_limits_of_a_token_are_places_too():
    shown = someone(Grant("operator"), limits=(Grant("operator", ("refund",)),))
    assert may(shown, "resolve", "refund")
    assert not may(shown, "resolve", "restock")
    assert not may(shown, "look")


def test_the_command_line_may_everything():
    assert all(may(typed("anna"), deed) for deed in DEEDS)
    assert typed("anna").via == "typed"


# --- answers ---------------------------------------------------------------------------------------------------------

ITEM = PermissionScope("r-1/refund#1", "refund", "eu")


@pytest.mark.parametrize("role", ["answerer", "operator", "admin"])
def test_who_may_answer_may(role: Role):
    check_answerer(someone(Grant(role, ("refund",) if role != "admin" else ())), ITEM, "anna")


@pytest.mark.parametrize("grant", [Grant("viewer"), Grant("admin", ("restock",)), Grant("answerer", (), ("us",))])
def test_who_may_not_is_told_what_is_missing_and_not_who_has_it(grant: Grant):
    with pytest.raises(
        NotAllowed, match=r"ben lacks the permission 'answer' for r-1/refund#1.*role answerer for refund in eu"
    ):
        check_answerer(someone(grant), ITEM)


@pytest.mark.parametrize("name", ["ben", "Ben", " BEN ", "\uff42\uff45\uff4e"])
@pytest.mark.parametrize("role", ["answerer", "operator", "admin"])
def test_nobody_approves_what_they_proposed_however_their_name_is_spelled(role: Role, name: str):
    with pytest.raises(NotAllowed, match="a person cannot approve their own proposal"):
        check_answerer(someone(Grant(role)), ITEM, (name,))
    with pytest.raises(NotAllowed, match="a person cannot approve their own proposal"):
        check_answerer(someone(Grant(role), name=name), ITEM, ("ann", "ben"))


def test_the_rule_holds_for_a_name_that_was_typed():
    with pytest.raises(NotAllowed, match="a person cannot approve their own proposal"):
        check_answerer(typed("ben"), ITEM, ("ben",))
    check_answerer(someone(Grant("answerer"), name="ben"), ITEM, ())


def test_a_review_takes_a_role_of_its_own():
    with pytest.raises(NotAllowed, match="role operator"):
        check_answerer(someone(Grant("answerer")), ITEM, permission="resolve")
    with pytest.raises(NotAllowed, match="role admin"):
        check_permission(someone(Grant("operator")), "tune", PermissionScope("policy"))
    with pytest.raises(NotAllowed, match="ben lacks the permission 'look' for INV-17"):
        check_permission(someone(Grant("submitter")), "look", PermissionScope("INV-17"))


def test_other_people_are_other_people():
    assert not same_person("ben", "bea")
    assert same_person("Straße", "STRASSE")
