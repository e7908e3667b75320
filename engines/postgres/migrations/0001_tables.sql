-- All tables of Flare. They stand in a schema of their own; `search_path` names it.

-- The one row that every write of documents and entities locks: it gives out the sequences, one group at a time.
CREATE TABLE head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    sequence bigint NOT NULL DEFAULT 0,
    entities_revision bigint NOT NULL DEFAULT 0,
    -- A sweep has removed replaced changes up to `swept_from`; one is on its way to `swept_to`.
    swept_from bigint NOT NULL DEFAULT 0,
    swept_to bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO head DEFAULT VALUES;

-- What became of the last group of each writer: how a node learns the outcome of a commit whose answer was lost.
CREATE TABLE writers (
    id uuid PRIMARY KEY,
    group_number bigint NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10);

-- The newest owner of deliveries.
CREATE TABLE owner (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO owner DEFAULT VALUES;

-- The number of the last record of each node: one that comes late, on a connection given up, is refused.
CREATE TABLE recorders (
    id uuid PRIMARY KEY,
    record_number bigint NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10);

CREATE FUNCTION begin_record(recorder uuid, record bigint, recorder_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
BEGIN
    SELECT epoch INTO newest FROM owner FOR SHARE;
    IF newest > recorder_epoch THEN
        RAISE EXCEPTION 'epoch % has replaced epoch %', newest, recorder_epoch USING ERRCODE = 'FL001';
    END IF;
    INSERT INTO recorders AS r VALUES (recorder, record, now())
        ON CONFLICT (id) DO UPDATE SET record_number = excluded.record_number, seen_at = excluded.seen_at
        WHERE r.record_number < excluded.record_number;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'record % comes too late', record USING ERRCODE = 'FL002';
    END IF;
END
$$;

CREATE TABLE streams (
    id uuid PRIMARY KEY,
    body jsonb NOT NULL,
    -- Documents that are there; tombstones do not count.
    documents bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE outlets (
    id uuid PRIMARY KEY,
    stream uuid NOT NULL REFERENCES streams,
    body jsonb NOT NULL
);
CREATE INDEX outlets_of_stream ON outlets (stream);

CREATE TABLE tokens (
    id uuid PRIMARY KEY,
    body jsonb NOT NULL
);

CREATE TABLE idempotency (
    key text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    made uuid NOT NULL,
    at timestamptz NOT NULL
);
CREATE INDEX idempotency_by_time ON idempotency (at);

-- The newest state of each document: which change is the newest. `number` is the sequence of the first.
CREATE TABLE documents (
    number bigint PRIMARY KEY,
    stream uuid NOT NULL,
    sequence bigint NOT NULL,
    revision numeric(39) NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted boolean NOT NULL,
    url text COLLATE "C" NOT NULL
) WITH (fillfactor = 80);
-- A URL may be longer than what an index takes. The lock on `head` keeps a URL from coming twice.
CREATE INDEX documents_by_url ON documents (stream, left(url, 2000));

-- Every change, with its content as it was sent: `json` keeps the text byte for byte, `jsonb` would not.
CREATE TABLE changes (
    sequence bigint PRIMARY KEY,
    stream uuid NOT NULL,
    number bigint NOT NULL,
    -- The change of the same document before this one.
    replaces bigint,
    revision numeric(39) NOT NULL,
    updated_at timestamptz NOT NULL,
    -- The length of the content.
    bytes integer NOT NULL,
    url text COLLATE "C" NOT NULL,
    -- Null when the document was deleted.
    content json,
    trace text
) PARTITION BY RANGE (sequence);
CREATE INDEX changes_of_stream ON changes (stream, sequence);

-- The partitions of `changes`: from `first` up to before `past`; how many rows were in it, and how many are removed.
CREATE TABLE partitions (
    name text PRIMARY KEY,
    first bigint NOT NULL,
    past bigint NOT NULL,
    rows bigint NOT NULL,
    removed bigint NOT NULL DEFAULT 0
);

-- How far the sequences were at which time.
CREATE TABLE clock (
    at timestamptz PRIMARY KEY,
    sequence bigint NOT NULL
);

CREATE TABLE cursors (
    outlet uuid PRIMARY KEY,
    cursor bigint NOT NULL,
    -- Messages that the client still asks for.
    demand bigint NOT NULL DEFAULT 0,
    -- Nothing but failures since then.
    failing_since timestamptz
) WITH (fillfactor = 50);

-- Which revision of a document an outlet has.
CREATE TABLE versions (
    outlet uuid NOT NULL,
    number bigint NOT NULL,
    sequence bigint NOT NULL,
    revision numeric(39) NOT NULL,
    deleted boolean NOT NULL,
    PRIMARY KEY (outlet, number)
) WITH (fillfactor = 80);

CREATE TABLE retries (
    outlet uuid NOT NULL,
    number bigint NOT NULL,
    url text COLLATE "C" NOT NULL,
    attempts integer NOT NULL,
    due timestamptz NOT NULL,
    PRIMARY KEY (outlet, number)
);

-- `json`, because what an endpoint answered may have characters that `jsonb` refuses.
CREATE TABLE dead_letters (
    outlet uuid NOT NULL,
    sequence bigint NOT NULL,
    body json NOT NULL,
    PRIMARY KEY (outlet, sequence)
);

-- Attempts that were recorded together are one row, in a form of Flare's own.
CREATE TABLE attempts (
    outlet uuid NOT NULL,
    -- When the first of them was made.
    at timestamptz NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (outlet, at)
);
CREATE INDEX attempts_by_time ON attempts USING brin (at) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE replays (
    outlet uuid PRIMARY KEY,
    body json NOT NULL
);

-- Deleted streams and outlets of which rows are left.
CREATE TABLE purges (
    kind text NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (kind, id)
);

-- Rows on which nodes agree.
CREATE TABLE agreed (
    key text PRIMARY KEY,
    version bigint NOT NULL,
    value bytea NOT NULL
) WITH (fillfactor = 50);
