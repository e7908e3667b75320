--
-- PostgreSQL database dump
--



SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: flare_upgrade; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA flare_upgrade;


--
-- Name: begin_record(uuid, bigint, bigint); Type: FUNCTION; Schema: flare_upgrade; Owner: -
--

CREATE FUNCTION flare_upgrade.begin_record(recorder uuid, record bigint, recorder_epoch bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: agreed; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.agreed (
    key text NOT NULL,
    version bigint NOT NULL,
    value bytea NOT NULL
)
WITH (fillfactor='50');


--
-- Name: attempts; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.attempts (
    outlet uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    body bytea NOT NULL
);


--
-- Name: changes; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.changes (
    sequence bigint NOT NULL,
    stream uuid NOT NULL,
    number bigint NOT NULL,
    replaces bigint,
    revision numeric(39,0) NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    bytes integer NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C",
    content json,
    trace text
)
PARTITION BY RANGE (sequence);


--
-- Name: changes_0; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.changes_0 (
    sequence bigint NOT NULL,
    stream uuid NOT NULL,
    number bigint NOT NULL,
    replaces bigint,
    revision numeric(39,0) NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    bytes integer NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C",
    content json,
    trace text
);


--
-- Name: changes_2000000; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.changes_2000000 (
    sequence bigint NOT NULL,
    stream uuid NOT NULL,
    number bigint NOT NULL,
    replaces bigint,
    revision numeric(39,0) NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    bytes integer NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C",
    content json,
    trace text
);


--
-- Name: clock; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.clock (
    at timestamp with time zone NOT NULL,
    sequence bigint NOT NULL
);


--
-- Name: cursors; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.cursors (
    outlet uuid NOT NULL,
    cursor bigint NOT NULL,
    demand bigint DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone
)
WITH (fillfactor='50');


--
-- Name: dead_letters; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.dead_letters (
    outlet uuid NOT NULL,
    sequence bigint NOT NULL,
    body json NOT NULL
);


--
-- Name: documents; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.documents (
    number bigint NOT NULL,
    stream uuid NOT NULL,
    sequence bigint NOT NULL,
    revision numeric(39,0) NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    deleted boolean NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='80');


--
-- Name: head; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.head (
    one boolean DEFAULT true NOT NULL,
    sequence bigint DEFAULT 0 NOT NULL,
    entities_revision bigint DEFAULT 0 NOT NULL,
    swept_from bigint DEFAULT 0 NOT NULL,
    swept_to bigint DEFAULT 0 NOT NULL,
    CONSTRAINT head_one_check CHECK (one)
)
WITH (fillfactor='10');


--
-- Name: idempotency; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.idempotency (
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    made uuid NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: migrations; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);


--
-- Name: outlets; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.outlets (
    id uuid NOT NULL,
    stream uuid NOT NULL,
    body jsonb NOT NULL
);


--
-- Name: owner; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.owner (
    one boolean DEFAULT true NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    CONSTRAINT owner_one_check CHECK (one)
)
WITH (fillfactor='10');


--
-- Name: partitions; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.partitions (
    name text NOT NULL,
    first bigint NOT NULL,
    past bigint NOT NULL,
    rows bigint NOT NULL,
    removed bigint DEFAULT 0 NOT NULL
);


--
-- Name: purges; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.purges (
    kind text NOT NULL,
    id uuid NOT NULL
);


--
-- Name: recorders; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.recorders (
    id uuid NOT NULL,
    record_number bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL
)
WITH (fillfactor='10');


--
-- Name: replays; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.replays (
    outlet uuid NOT NULL,
    body json NOT NULL
);


--
-- Name: retries; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.retries (
    outlet uuid NOT NULL,
    number bigint NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C",
    attempts integer NOT NULL,
    due timestamp with time zone NOT NULL
);


--
-- Name: streams; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.streams (
    id uuid NOT NULL,
    body jsonb NOT NULL,
    documents bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');


--
-- Name: tokens; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.tokens (
    id uuid NOT NULL,
    body jsonb NOT NULL
);


--
-- Name: versions; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.versions (
    outlet uuid NOT NULL,
    number bigint NOT NULL,
    sequence bigint NOT NULL,
    revision numeric(39,0) NOT NULL,
    deleted boolean NOT NULL
)
WITH (fillfactor='80');


--
-- Name: writers; Type: TABLE; Schema: flare_upgrade; Owner: -
--

CREATE TABLE flare_upgrade.writers (
    id uuid NOT NULL,
    group_number bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL
)
WITH (fillfactor='10');


--
-- Name: changes_0; Type: TABLE ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.changes ATTACH PARTITION flare_upgrade.changes_0 FOR VALUES FROM ('0') TO ('2000000');


--
-- Name: changes_2000000; Type: TABLE ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.changes ATTACH PARTITION flare_upgrade.changes_2000000 FOR VALUES FROM ('2000000') TO ('4000000');


--
-- Data for Name: agreed; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: attempts; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: changes_0; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.changes_0 VALUES (1, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 1, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/0', '{"name":"0","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (2, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 2, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/1', '{"name":"1","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (3, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 3, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/2', '{"name":"2","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (4, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 4, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/3', '{"name":"3","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (5, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 5, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/4', '{"name":"4","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (6, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 6, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/5', '{"name":"5","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (7, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 7, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/6', '{"name":"6","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (8, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 8, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/7', '{"name":"7","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (9, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 9, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/8', '{"name":"8","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (10, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 10, NULL, 1, '2023-11-14 22:13:21+00', 25, 'http://api.test/users/9', '{"name":"9","revision":1}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (11, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 1, 1, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/0', '{"name":"0","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (12, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 2, 2, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/1', '{"name":"1","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (13, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 3, 3, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/2', '{"name":"2","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (14, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 4, 4, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/3', '{"name":"3","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (15, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 5, 5, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/4', '{"name":"4","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (16, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 6, 6, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/5', '{"name":"5","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (17, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 7, 7, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/6', '{"name":"6","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (18, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 8, 8, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/7', '{"name":"7","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (19, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 9, 9, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/8', '{"name":"8","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (20, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 10, 10, 2, '2023-11-14 22:13:22+00', 25, 'http://api.test/users/9', '{"name":"9","revision":2}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (21, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 1, 11, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/0', '{"name":"0","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (22, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 2, 12, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/1', '{"name":"1","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (23, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 3, 13, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/2', '{"name":"2","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (24, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 4, 14, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/3', '{"name":"3","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (25, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 5, 15, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/4', '{"name":"4","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (26, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 6, 16, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/5', '{"name":"5","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (27, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 7, 17, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/6', '{"name":"6","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (28, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 8, 18, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/7', '{"name":"7","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (29, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 9, 19, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/8', '{"name":"8","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (30, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 10, 20, 3, '2023-11-14 22:13:23+00', 25, 'http://api.test/users/9', '{"name":"9","revision":3}', NULL);
INSERT INTO flare_upgrade.changes_0 VALUES (31, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 10, 30, 4, '2023-11-14 22:30:00+00', 0, 'http://api.test/users/9', NULL, NULL);


--
-- Data for Name: changes_2000000; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: clock; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.clock VALUES ('2023-11-14 22:13:21+00', 0);
INSERT INTO flare_upgrade.clock VALUES ('2023-11-14 22:30:00+00', 30);


--
-- Data for Name: cursors; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.cursors VALUES ('01a1e455-ac12-74a6-adcc-f25ae17d0833', 15, 4, '2023-11-14 22:13:23+00');


--
-- Data for Name: dead_letters; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.dead_letters VALUES ('01a1e455-ac12-74a6-adcc-f25ae17d0833', 12, '{"number":2,"url":"http://api.test/users/1","sequence":12,"revision":"2","attempts":5,"cause":"exhausted","detail":"the endpoint answered 500","at":1700000007000000}');


--
-- Data for Name: documents; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.documents VALUES (1, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 21, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/0');
INSERT INTO flare_upgrade.documents VALUES (2, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 22, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/1');
INSERT INTO flare_upgrade.documents VALUES (3, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 23, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/2');
INSERT INTO flare_upgrade.documents VALUES (4, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 24, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/3');
INSERT INTO flare_upgrade.documents VALUES (5, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 25, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/4');
INSERT INTO flare_upgrade.documents VALUES (6, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 26, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/5');
INSERT INTO flare_upgrade.documents VALUES (7, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 27, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/6');
INSERT INTO flare_upgrade.documents VALUES (8, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 28, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/7');
INSERT INTO flare_upgrade.documents VALUES (9, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 29, 3, '2023-11-14 22:13:23+00', false, 'http://api.test/users/8');
INSERT INTO flare_upgrade.documents VALUES (10, '01a1e455-ac0e-704b-8a41-d465ad3875e6', 31, 4, '2023-11-14 22:30:00+00', true, 'http://api.test/users/9');


--
-- Data for Name: head; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.head VALUES (true, 31, 3, 0, 0);


--
-- Data for Name: idempotency; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: migrations; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.migrations VALUES (1, 'tables', '2026-11-16 12:29:42.132901+00');


--
-- Data for Name: outlets; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.outlets VALUES ('01a1e455-ac12-74a6-adcc-f25ae17d0833', '01a1e455-ac0e-704b-8a41-d465ad3875e6', '{"url": "http://client.test/{id}", "data": [["id", {"text": "{id}"}], ["n", {"json": "[1,2]"}]], "mode": "active", "name": "wishlist", "since": 0, "filter": "current.name != ''nobody''", "format": "cloudevents", "method": "post", "secret": "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "status": "active", "stream": "01a1e455-ac0e-704b-8a41-d465ad3875e6", "actions": [{"url": null, "action": "delete", "method": "delete", "headers": []}], "headers": [["x-one", ["1", "2"]]], "delivery": {"rate": 100, "retry": {"num_retries": 50, "backoff_function": "exponential", "max_delay_target": 3600, "min_delay_target": 1, "num_no_delay_retries": 3, "num_max_delay_retries": 35, "num_min_delay_retries": 2}, "ttl_ms": 3600000, "discard": [500], "success": [200], "timeout_ms": 1500, "concurrency": 7}, "document": true, "envelope": false, "snapshot": false, "handshake": true, "revisions": "all", "created_at": 1700000001000000, "updated_at": 1700000002000000, "previous_secret": ["whsk_CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICA==", 1700000005000000]}');


--
-- Data for Name: owner; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.owner VALUES (true, 0);


--
-- Data for Name: partitions; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.partitions VALUES ('changes_0', 0, 2000000, 2000000, 0);
INSERT INTO flare_upgrade.partitions VALUES ('changes_2000000', 2000000, 4000000, 2000000, 0);


--
-- Data for Name: purges; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: recorders; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.recorders VALUES ('9dcb33d9-076b-7851-e78c-172d5b7a73e8', 1, '2026-11-16 12:29:42.381808+00');


--
-- Data for Name: replays; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--



--
-- Data for Name: retries; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.retries VALUES ('01a1e455-ac12-74a6-adcc-f25ae17d0833', 2, 'http://api.test/users/1', 2, '2023-11-14 22:14:20+00');


--
-- Data for Name: streams; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.streams VALUES ('01a1e455-ac0e-704b-8a41-d465ad3875e6', '{"field": "meta.updatedAt", "format": "2006-01-02T15:04:05Z07:00", "endpoint": "http://api.test/users/{id}", "created_at": 1700000000000000}', 9);


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.tokens VALUES ('01a1e455-ac17-70dc-b686-eb5cdb2c8a69', '{"name": "nightly import", "scope": "write", "digest": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31], "streams": ["01a1e455-ac17-70dc-b686-eb5dedebb514", "01a1e455-ac17-70dc-b686-eb5e14b92aaf"], "created_at": 1700000003000000, "expires_at": 1700000004000000}');


--
-- Data for Name: versions; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.versions VALUES ('01a1e455-ac12-74a6-adcc-f25ae17d0833', 1, 11, 2, false);


--
-- Data for Name: writers; Type: TABLE DATA; Schema: flare_upgrade; Owner: -
--

INSERT INTO flare_upgrade.writers VALUES ('9dcb33d9-076b-7851-e78c-172d5b7a73e8', 34, '2026-11-16 12:29:42.37632+00');


--
-- Name: agreed agreed_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.agreed
    ADD CONSTRAINT agreed_pkey PRIMARY KEY (key);


--
-- Name: attempts attempts_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (outlet, at);


--
-- Name: changes changes_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (sequence);


--
-- Name: changes_0 changes_0_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.changes_0
    ADD CONSTRAINT changes_0_pkey PRIMARY KEY (sequence);


--
-- Name: changes_2000000 changes_2000000_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.changes_2000000
    ADD CONSTRAINT changes_2000000_pkey PRIMARY KEY (sequence);


--
-- Name: clock clock_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.clock
    ADD CONSTRAINT clock_pkey PRIMARY KEY (at);


--
-- Name: cursors cursors_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (outlet);


--
-- Name: dead_letters dead_letters_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (outlet, sequence);


--
-- Name: documents documents_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (number);


--
-- Name: head head_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (one);


--
-- Name: idempotency idempotency_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (key);


--
-- Name: migrations migrations_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);


--
-- Name: outlets outlets_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.outlets
    ADD CONSTRAINT outlets_pkey PRIMARY KEY (id);


--
-- Name: owner owner_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.owner
    ADD CONSTRAINT owner_pkey PRIMARY KEY (one);


--
-- Name: partitions partitions_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.partitions
    ADD CONSTRAINT partitions_pkey PRIMARY KEY (name);


--
-- Name: purges purges_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.purges
    ADD CONSTRAINT purges_pkey PRIMARY KEY (kind, id);


--
-- Name: recorders recorders_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.recorders
    ADD CONSTRAINT recorders_pkey PRIMARY KEY (id);


--
-- Name: replays replays_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.replays
    ADD CONSTRAINT replays_pkey PRIMARY KEY (outlet);


--
-- Name: retries retries_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.retries
    ADD CONSTRAINT retries_pkey PRIMARY KEY (outlet, number);


--
-- Name: streams streams_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (id);


--
-- Name: tokens tokens_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);


--
-- Name: versions versions_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (outlet, number);


--
-- Name: writers writers_pkey; Type: CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.writers
    ADD CONSTRAINT writers_pkey PRIMARY KEY (id);


--
-- Name: attempts_by_time; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX attempts_by_time ON flare_upgrade.attempts USING brin (at) WITH (pages_per_range='16', autosummarize='on');


--
-- Name: changes_of_stream; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX changes_of_stream ON ONLY flare_upgrade.changes USING btree (stream, sequence);


--
-- Name: changes_0_stream_sequence_idx; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX changes_0_stream_sequence_idx ON flare_upgrade.changes_0 USING btree (stream, sequence);


--
-- Name: changes_2000000_stream_sequence_idx; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX changes_2000000_stream_sequence_idx ON flare_upgrade.changes_2000000 USING btree (stream, sequence);


--
-- Name: documents_by_url; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX documents_by_url ON flare_upgrade.documents USING btree (stream, "left"(url, 2000));


--
-- Name: idempotency_by_time; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX idempotency_by_time ON flare_upgrade.idempotency USING btree (at);


--
-- Name: outlets_of_stream; Type: INDEX; Schema: flare_upgrade; Owner: -
--

CREATE INDEX outlets_of_stream ON flare_upgrade.outlets USING btree (stream);


--
-- Name: changes_0_pkey; Type: INDEX ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER INDEX flare_upgrade.changes_pkey ATTACH PARTITION flare_upgrade.changes_0_pkey;


--
-- Name: changes_0_stream_sequence_idx; Type: INDEX ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER INDEX flare_upgrade.changes_of_stream ATTACH PARTITION flare_upgrade.changes_0_stream_sequence_idx;


--
-- Name: changes_2000000_pkey; Type: INDEX ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER INDEX flare_upgrade.changes_pkey ATTACH PARTITION flare_upgrade.changes_2000000_pkey;


--
-- Name: changes_2000000_stream_sequence_idx; Type: INDEX ATTACH; Schema: flare_upgrade; Owner: -
--

ALTER INDEX flare_upgrade.changes_of_stream ATTACH PARTITION flare_upgrade.changes_2000000_stream_sequence_idx;


--
-- Name: outlets outlets_stream_fkey; Type: FK CONSTRAINT; Schema: flare_upgrade; Owner: -
--

ALTER TABLE ONLY flare_upgrade.outlets
    ADD CONSTRAINT outlets_stream_fkey FOREIGN KEY (stream) REFERENCES flare_upgrade.streams(id);


--
-- PostgreSQL database dump complete
--


