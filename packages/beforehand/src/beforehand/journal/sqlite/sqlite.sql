-- The journal on SQLite, version 2.
--
-- Four kinds of table. Records are the append-only truth of one run; the ledger holds entries that
-- belong to no run; `run` is a projection of records for listings, and the home of leases; cells are
-- small state that all processes share. Everything is JSON text that a person can read with the sqlite3 shell.

-- meta -- What this journal is: namespace, secret, incarnation and how far it is trusted.
create table meta (
  name  text primary key,
  value text not null
) without rowid;

-- run -- One row per run. `token` fences late owners: it grows with each claim, and a write that
-- carries an older one stores nothing. `owner` is the worker that drives the run, null when none does.
-- `program` is the program that the agent belongs to: agents of one name in two programs are two agents.
-- The last columns are those of a run that was submitted to a queue. `about` is its key: what it is about; `behind` is 1 while it
-- waits for others of that key, `holds` is 1 from its begin to its end, `served_ms` is when it last got a slot.
create table run (
  id         integer primary key,
  name       text not null unique,
  agent      text not null,
  program    text not null,
  status     text not null,
  reason     text not null,
  due_ms     integer,
  waits      text not null,
  token      integer not null,
  owner      text,
  created_ms integer not null,
  updated_ms integer not null,
  queue      text not null default '',
  tenant     text not null default '',
  about      text not null default '',
  priority   integer not null default 0,
  behind     integer not null default 0,
  holds      integer not null default 0,
  served_ms  integer,
  ready_ms   integer generated always as (case status when 'running' then updated_ms else due_ms end) virtual
);

-- Only runs that may want a worker are in this index, so finished ones cost nothing.
create index run_open on run (status, due_ms) where status in ('running', 'suspended');

-- What a worker takes up, by agent and program and in the order in which it is due: runs of other programs are not read.
create index run_due on run (agent, program, status, due_ms) where owner is null and status in ('running', 'suspended')
  and queue = '';

-- The runs that a worker drives: found among any number of runs that only wait, in case the worker has died.
create index run_held on run (owner) where owner is not null;

-- How many runs there are, by agent and status: the lines themselves are ten times as much to read.
create index run_count on run (agent, status);

-- Stopped runs that cannot go on by themselves, and ask a person: the inbox reads no other stopped one.
create index run_halted on run (name) where status = 'stopped' and waits <> '[]';

-- Lanes of runs that wait for a slot: the first of each is found by a seek, however many wait behind it.
create index run_lane on run (agent, program, queue, tenant, priority, ready_ms)
  where queue <> '' and owner is null and behind = 0 and status in ('queued', 'running', 'suspended');

-- Slots in use, and when each tenant of a queue got its last one.
create index run_slot on run (queue, agent, tenant, owner) where queue <> '' and owner is not null;
create index run_served on run (queue, tenant, served_ms) where queue <> '' and served_ms is not null;

-- Runs of one key: those that have it, and those behind them.
create index run_key on run (queue, about) where holds = 1;
create index run_behind on run (queue, about, ready_ms) where behind = 1;

-- queue -- How many runs wait to begin, kept by the triggers below in the commit of each change.
create table queue (
  name    text primary key,
  waiting integer not null
) without rowid;

create trigger run_submitted after insert on run when new.status = 'queued'
begin
  insert into queue (name, waiting) values (new.queue, 1) on conflict (name) do update set waiting = waiting + 1;
end;

create trigger run_queued after update of status on run
when (old.status = 'queued') <> (new.status = 'queued')
begin
  insert into queue (name, waiting) values (new.queue, (new.status = 'queued') - (old.status = 'queued'))
    on conflict (name) do update set waiting = waiting + excluded.waiting;
end;

-- A run that ends gives its key to the first one behind it. So does one that is paused there, or goes on: it has no key
-- yet, and its place is found out again, or those behind it would wait for a run that nothing wakes.
create trigger run_key_freed after update of status on run
when old.about <> '' and (
  new.status not in ('queued', 'running', 'suspended')
  or (new.holds = 0 and new.owner is null and new.status <> 'queued')
)
begin
  update run set holds = 0, behind = 0 where id = old.id;
  update run set behind = 0 where id = (
    select id from run where behind = 1 and queue = old.queue and about = old.about order by ready_ms, id limit 1
  );
end;

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

-- record -- Append-only. `hash` is sha256(hash of the row before, body); the run's first row chains to
-- its genesis. A rowid table grows at its end; clustering by run would dirty a page per run and batch.
-- Each body ends with its two moments, under the chain. As numbers, in `at` and `up`, they take a third of the space:
-- `content` is the body up to them, or the whole body where it ends otherwise, and reading `body` puts them together.
-- A body above 8 KiB is `{"payload":"<sha256>"}` here and stands in full in `payload`.
create table record (
  id      integer primary key,
  run     integer not null,
  seq     integer not null,
  token   integer not null,
  content text not null,
  at      integer,
  up      integer,
  hash    blob not null,
  body    text generated always as (
    case when at is null and up is null then content
    else content || ',"at":' || coalesce(at, '') || ',"up":' || coalesce(up, '') || '}' end
  ) virtual
);

create unique index record_run_seq on record (run, seq);

-- payload -- Large bodies, by digest; equal ones are stored once.
create table payload (
  digest text primary key,
  body   text not null
) without rowid;

-- ledger -- Append-only streams that belong to no run: commands, claims, answers, events. The first
-- entry under (stream, key) is final. `hash` chains the entries of one stream.
create table ledger (
  id     integer primary key,
  stream text not null,
  key    text not null,
  body   text not null,
  at_ms  integer not null,
  hash   blob not null
);

create index ledger_stream on ledger (stream);
create unique index ledger_key on ledger (stream, key) where key <> '';

-- Under new limits more runs of one key may begin at once: which of them wait is found out again.
create trigger run_limits_changed after insert on ledger when new.stream = 'queues'
begin
  update run set behind = 0 where behind = 1;
end;

-- worker -- Who drives runs: enough to prove later that the process is dead. The lease ends at a
-- moment of the boot clock, which cannot be set and which runs on while the machine sleeps.
create table worker (
  id            text primary key,
  machine       text not null,
  boot          text not null,
  pid_namespace text not null,
  pid           integer not null,
  started       integer not null,
  lease_boot    text not null,
  lease_end_ms  integer not null,
  incarnation   text not null
) without rowid;
