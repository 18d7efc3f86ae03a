-- The tables of evener. Times are milliseconds since 1970 by now_ms(). Names and keys compare byte by
-- byte (COLLATE "C"), as the program compares them. There are no foreign keys: each would cost a look
-- and a row lock for each event, and who writes a row has just read, in the same statement, what it names.

-- The one clock. Tests put another body in its place.
CREATE FUNCTION evener.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Places in the order of all events, and in the order of the queue. CACHE 1: a session that kept numbers
-- back would hand out small ones late.
CREATE SEQUENCE evener.event_seq CACHE 1;
CREATE SEQUENCE evener.queue_id CACHE 1;
CREATE SEQUENCE evener.instance_id CACHE 1;
CREATE SEQUENCE evener.pending_id CACHE 1;

-- Draws so many places, in order. The transaction takes its number first, so that whoever takes a later
-- transaction number than every draw up to a place can tell when all of those have ended (settled_seq).
CREATE FUNCTION evener.draw(events integer, rows integer, OUT seqs bigint[], OUT ids bigint[], OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_current_xact_id();
    IF events > 0 THEN
        seqs := ARRAY(SELECT nextval('evener.event_seq') FROM generate_series(1, events));
    END IF;
    IF rows > 0 THEN
        ids := ARRAY(SELECT nextval('evener.queue_id') FROM generate_series(1, rows));
    END IF;
    at_ms := evener.now_ms();
END $$;

-- The place up to which events were drawn; then a transaction number that is greater than that of each of
-- those; then the least number of a transaction that has not ended. Each line sees the world anew.
CREATE FUNCTION evener.settled_seq(OUT drawn bigint, OUT below xid8, OUT ended_below xid8)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO drawn FROM evener.event_seq;
    below := pg_current_xact_id();
    ended_below := pg_snapshot_xmin(pg_current_snapshot());
END $$;

CREATE TABLE evener.tenants (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    routes_version bigint NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE evener.streams (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    -- Who fans it out, and by which right. Appends never touch this row.
    lease_boot bigint,
    lease_epoch bigint NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL,
    UNIQUE (tenant, name)
) WITH (fillfactor = 70);

CREATE TABLE evener.actors (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    is_indexed boolean NOT NULL,
    name text COLLATE "C" NOT NULL,
    definition text NOT NULL,
    UNIQUE (tenant, name)
);

CREATE TABLE evener.subscriptions (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    actor bigint NOT NULL,
    stream bigint NOT NULL,
    -- Its place in the actor's definition.
    place integer NOT NULL,
    is_direct boolean NOT NULL,
    is_live boolean NOT NULL,
    kind text NOT NULL,
    spec text NOT NULL
);
CREATE INDEX subscriptions_of_tenant ON evener.subscriptions (tenant, actor, place) WHERE is_live;

-- An empty key stands for all instances of the actor; keys are never empty.
CREATE TABLE evener.paused (
    tenant bigint NOT NULL,
    actor bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX paused_of_tenant ON evener.paused (tenant);

-- Rows are written once. Payloads are bytes: text would refuse NUL, jsonb more than that.
CREATE TABLE evener.events (
    seq bigint PRIMARY KEY,
    tenant bigint NOT NULL,
    stream bigint,
    time_ms bigint NOT NULL,
    appended_ms bigint NOT NULL,
    id text NOT NULL,
    source text NOT NULL,
    kind text NOT NULL,
    subject text,
    content_type text,
    headers text,
    data bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX events_of_stream ON evener.events (stream, seq) WHERE stream IS NOT NULL;

-- Ids that are known, each for its window. The key is a hash, because sources and ids may be longer than an
-- index takes. Stream 0: none.
CREATE TABLE evener.dedupe (
    tenant bigint NOT NULL,
    stream bigint NOT NULL,
    key bytea NOT NULL,
    seq bigint NOT NULL,
    body_hash bigint NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (tenant, stream, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX dedupe_by_expiry ON evener.dedupe (expires_ms);

-- What waits for a fan-out.
CREATE TABLE evener.pending (
    stream bigint NOT NULL,
    seq bigint NOT NULL,
    subscription bigint NOT NULL,
    id bigint NOT NULL,
    reached bigint,
    PRIMARY KEY (stream, seq, subscription)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- No index on anything that a commit or a claim changes, and room in each page, so that their new versions
-- stay in the page (HOT) and touch no index.
CREATE TABLE evener.instances (
    id bigint PRIMARY KEY,
    tenant bigint NOT NULL,
    actor bigint NOT NULL,
    owner bigint,
    epoch bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    slot smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    state bytea,
    UNIQUE (actor, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX instances_of_actor ON evener.instances (actor, id);

-- What waits for instances. A row's place is its id. Rows come and go at the speed of events, so vacuum
-- goes by their number, not by a share of the table.
CREATE TABLE evener.queue (
    instance bigint NOT NULL,
    id bigint NOT NULL,
    seq bigint NOT NULL,
    group_hash bigint NOT NULL,
    slot smallint NOT NULL,
    is_indexed boolean NOT NULL,
    is_blocked boolean NOT NULL DEFAULT false,
    priority integer NOT NULL,
    event_bytes integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    stream bigint,
    -- Not there: it is due.
    not_before_ms bigint,
    -- Not there: its own id.
    origin bigint,
    group_name text,
    error text,
    PRIMARY KEY (slot, instance, id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
-- Which rows name an event: for retention, and for what became of a duplicate.
CREATE INDEX queue_by_seq ON evener.queue (seq);
-- For actors whose rows are chosen by group or priority alone.
CREATE INDEX queue_by_group ON evener.queue (slot, instance, group_hash, id) WHERE is_indexed;
CREATE INDEX queue_by_priority ON evener.queue (slot, instance, group_hash, priority DESC, id) WHERE is_indexed;

CREATE TABLE evener.dead_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    actor bigint NOT NULL,
    instance bigint NOT NULL,
    seq bigint NOT NULL,
    origin bigint NOT NULL,
    group_hash bigint NOT NULL,
    at_ms bigint NOT NULL,
    slot smallint NOT NULL,
    is_indexed boolean NOT NULL,
    priority integer NOT NULL,
    event_bytes integer NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    stream bigint,
    group_name text,
    cause text NOT NULL,
    error text NOT NULL
);
CREATE INDEX dead_letters_of_tenant ON evener.dead_letters (tenant, id);
CREATE INDEX dead_letters_of_actor ON evener.dead_letters (tenant, actor, id);
CREATE INDEX dead_letters_by_seq ON evener.dead_letters (seq);

CREATE TABLE evener.parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    seq bigint NOT NULL,
    stream bigint,
    subscription bigint,
    at_ms bigint NOT NULL,
    event_bytes integer NOT NULL,
    reason text NOT NULL
);
CREATE INDEX parked_of_tenant ON evener.parked (tenant, id);
CREATE INDEX parked_by_seq ON evener.parked (seq);

CREATE TABLE evener.scheduled_events (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant bigint NOT NULL,
    generation bigint NOT NULL,
    fire_at_ms bigint NOT NULL,
    to_stream bigint,
    to_actor bigint,
    event_time_ms bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    spec text NOT NULL,
    cron_expression text,
    cron_zone text,
    cron_catch_up text,
    to_key text,
    event_id text NOT NULL,
    source text NOT NULL,
    kind text NOT NULL,
    subject text,
    content_type text,
    headers text,
    data bytea NOT NULL,
    UNIQUE (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX scheduled_events_by_time ON evener.scheduled_events (fire_at_ms, no);

-- One row for each boot. A dead one never lives again.
CREATE TABLE evener.runtime_workers (
    boot bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    last_seen_ms bigint NOT NULL,
    routes bigint NOT NULL DEFAULT 0,
    in_flight integer NOT NULL DEFAULT 0,
    active integer NOT NULL DEFAULT 0,
    is_live boolean NOT NULL,
    name text NOT NULL
) WITH (fillfactor = 50);

-- The last batch of each lane, and the places that it drew: with them, and with the number of the
-- transaction that wrote this row, its answer is read back when it was lost.
CREATE TABLE evener.lanes (
    boot bigint NOT NULL,
    lane integer NOT NULL,
    batch_no bigint NOT NULL,
    seq_first bigint,
    seq_last bigint,
    row_first bigint,
    row_last bigint,
    -- Which firings fired.
    report bigint[],
    PRIMARY KEY (boot, lane)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
