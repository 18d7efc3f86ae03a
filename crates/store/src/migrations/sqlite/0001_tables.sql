-- The first schema.
--
-- Numbers everywhere: names stand once, in the tables of names, and rows name each other by integers, which
-- SQLite stores in as many bytes as they need and compares fastest. Every index is paid for by each event
-- that touches its table, so each one says what it is for. Times are milliseconds since 1970, UTC, by the
-- clock that the program hands in. 0 and 1 take no room in a row beyond their byte in its header.

-- The last number of each kind that was given. It is written in the transaction that uses the numbers, so
-- a number is never given twice, also when the row that had it is gone, and other programs that write see it.
CREATE TABLE counters (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    schedule INTEGER NOT NULL,
    letter INTEGER NOT NULL,
    parked INTEGER NOT NULL
) STRICT;
INSERT INTO counters VALUES (1, 0, 0, 0, 0, 0, 0, 0);

CREATE TABLE tenants (
    no INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- Rises with each deploy that changes something.
    routes_version INTEGER NOT NULL
) STRICT;

CREATE TABLE streams (
    no INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- Who fans out its pending events.
    owner INTEGER,
    epoch INTEGER NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
-- Which boots hold a lease: they are not pruned.
CREATE INDEX streams_by_owner ON streams (owner) WHERE owner IS NOT NULL;

CREATE TABLE actors (
    no INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_indexed INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    -- JSON.
    definition TEXT NOT NULL,
    UNIQUE (tenant, name)
) STRICT;

-- Ended ones stay, so that their numbers are not given again.
CREATE TABLE subscriptions (
    no INTEGER PRIMARY KEY,
    actor INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    -- Its place in the actor's definition; NULL: it has ended.
    place INTEGER,
    -- JSON.
    definition TEXT NOT NULL
) STRICT;
CREATE INDEX subscriptions_by_actor ON subscriptions (actor, place) WHERE place IS NOT NULL;

-- Instances that are paused one by one, by key: they may not exist yet.
CREATE TABLE paused_keys (
    actor INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;

-- The payload stands last, so that what is read without it does not follow its overflow pages. There is no
-- index: a stream's events are found by its runs.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    id TEXT NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT,
    content_type TEXT,
    headers TEXT,
    data BLOB NOT NULL
) STRICT;

-- Events that came one after another into one stream, in one batch: what would stand in an index once for each
-- event stands here once for all of them. stream is 0 for events that went into none.
CREATE TABLE runs (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    -- When they came, by the store's clock.
    at INTEGER NOT NULL
) STRICT;
-- For readers of a stream; the rowid, which is the first seq, follows by itself.
CREATE INDEX runs_by_stream ON runs (stream);

-- Ids that senders gave, for as long as they are known. stream is 0 where there is none.
CREATE TABLE dedupe (
    tenant INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body_hash INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (tenant, stream, source, id)
) STRICT, WITHOUT ROWID;
-- For prune: what is over is found without reading what is not.
CREATE INDEX dedupe_by_end ON dedupe (expires);

-- A row for each event and deferred subscription. The number is looked for among the few of one event only.
CREATE TABLE pending (
    stream INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subscription INTEGER NOT NULL,
    id INTEGER NOT NULL,
    reached INTEGER,
    PRIMARY KEY (stream, seq, subscription)
) STRICT, WITHOUT ROWID;

-- What a commit changes, and nothing else: an update writes the whole row anew, and the fewer bytes it has, the
-- fewer pages a batch changes.
CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    owner INTEGER,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state BLOB
) STRICT;
-- Which boots own something: claim and release write it, commits do not.
CREATE INDEX instances_by_owner ON instances (owner) WHERE owner IS NOT NULL;

-- What an instance is called, written once in its life. The numbers are those of `instances`.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    slot INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    actor INTEGER NOT NULL,
    key TEXT NOT NULL,
    UNIQUE (actor, key)
) STRICT;
-- For a broadcast, which goes by number.
CREATE INDEX keys_by_actor ON keys (actor);

-- What waits. Rows of an instance stand together, in the order of their places, and instances of a slot
-- beside each other, so that a drain reads a range and a search for waiting instances skips from one to the
-- next. A row has about 25 bytes and is in no index; what only some rows have stands in `queue_more`.
CREATE TABLE queue (
    slot INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    stream INTEGER,
    event_bytes INTEGER NOT NULL,
    -- The row's own id where queue_more has a row for it, so that a join searches there only then.
    more INTEGER,
    PRIMARY KEY (slot, instance, id)
) STRICT, WITHOUT ROWID;

-- Groups, priorities, attempts, and who is told apart in an index. It goes with its row of `queue`.
CREATE TABLE queue_more (
    id INTEGER PRIMARY KEY,
    slot INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    is_indexed INTEGER NOT NULL DEFAULT 0,
    group_hash INTEGER NOT NULL DEFAULT 0,
    group_text TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    -- NULL: at once.
    not_before INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    is_blocked INTEGER NOT NULL DEFAULT 0,
    -- NULL: its own place.
    origin INTEGER,
    error TEXT,
    -- The event's, if it came with an id of the sender's; see queue_tracked.
    tracked_seq INTEGER
) STRICT;
-- For actors whose rows are told apart by group or priority. Within a priority it is in the order of places,
-- so reads by place merge the priorities that a group has, mostly one.
CREATE INDEX queue_by_group ON queue_more (instance, group_hash, priority DESC, id) WHERE is_indexed = 1;
-- For rows of events that came with an id of the sender's: what has become of the event is asked by seq.
CREATE INDEX queue_tracked ON queue_more (tracked_seq) WHERE tracked_seq IS NOT NULL;

CREATE TABLE scheduled_events (
    no INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    fire_at INTEGER NOT NULL,
    spec TEXT NOT NULL,
    cron TEXT,
    time_zone TEXT,
    catch_up TEXT,
    to_stream INTEGER,
    to_actor INTEGER,
    to_key TEXT,
    event_time INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT,
    content_type TEXT,
    headers TEXT,
    data BLOB NOT NULL,
    UNIQUE (tenant, id)
) STRICT;
-- What is due, and when the next is.
CREATE INDEX scheduled_events_by_time ON scheduled_events (fire_at);

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    actor INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    stream INTEGER,
    event_bytes INTEGER NOT NULL,
    is_indexed INTEGER NOT NULL,
    is_tracked INTEGER NOT NULL,
    group_hash INTEGER NOT NULL,
    group_text TEXT,
    priority INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    cause TEXT NOT NULL,
    error TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
-- Pages of a tenant's letters, of all actors or of one; the number follows by itself.
CREATE INDEX dead_letters_by_tenant ON dead_letters (tenant);
CREATE INDEX dead_letters_by_actor ON dead_letters (tenant, actor);
-- What has become of an event, and whether it may be pruned.
CREATE INDEX dead_letters_by_seq ON dead_letters (seq);

CREATE TABLE parked (
    id INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subscription INTEGER,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX parked_by_tenant ON parked (tenant);
CREATE INDEX parked_by_seq ON parked (seq);

-- AUTOINCREMENT: a boot that is dead never lives again, so its number is never given again.
CREATE TABLE runtime_workers (
    boot INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    is_live INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    active INTEGER NOT NULL,
    routes INTEGER NOT NULL
) STRICT;

-- The number of the last batch of each lane of a boot.
CREATE TABLE lanes (
    boot INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (boot, lane)
) STRICT, WITHOUT ROWID;
