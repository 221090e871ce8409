-- From version 1: what all processes share lies in one table, in the place of five.

-- cell -- Small state that is changed in the commit of what it belongs to. `kind` says by which rule: a *counter* of what
-- runs use and reserve of a budget, the *rate* of a limit as moments of the boot clock, a *slot* for each call under way,
-- what has fired *once*, with its run, and a *hint*, which may be lost. The key tells the cells of one name apart.
create table cell (
  kind text not null,
  name text not null,
  key  text not null,
  body text not null,
  primary key (kind, name, key)
) without rowid;

insert into cell select 'once', schedule, printf('%016d', moment_ms), json_quote(run) from firing;
insert into cell select 'slot', name, worker || ' ' || number, json_array(operation, units, at_ms) from permit;
insert into cell select 'rate', name, '', json_array(boot, due_ns, closed_ms, busy_ns, apart_ns) from pace;
insert into cell select 'counter', budget || ' ' || period, what, json_array(used, reserved) from budget_use;
insert into cell select 'hint', name, '', body from hint;

drop table firing;
drop table permit;
drop table pace;
drop table budget_use;
drop table hint;
