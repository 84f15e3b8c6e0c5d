"""The tables and queries of a study's SQLite file.

Machines and data sets have tables of their own, because many results share them. Points are
integers where possible (misclassified rows, microseconds): SQLite stores them in few bytes. The
view ``curves`` presents them in plain units.
"""

#: The format of new files. Format 1 (desopt 0.1) had no digests and no former members, format 2
#: no ``settings``, and an error rate at every point.
FORMAT = 3

_CURVES = """
    SELECT c.id AS case_id, c.data, c.problem, c.method, c.step_size, c.momentum, c.batch_size,
        c.run, p.round, p.round * r.paper_rounds_each AS paper_round, p.evaluations, p.samples,
        p.bytes_up, p.bytes_down, p.microseconds / 1e6 AS seconds, p.train_loss,
        p.train_wrong * 1.0 / d.train_rows AS train_error, p.test_loss,
        p.test_wrong * 1.0 / d.test_rows AS test_error, c.key, c.digest, c.settings
    FROM points p JOIN results r USING (case_key) JOIN cases c ON c.key = r.case_key
        JOIN data_sets d ON d.key = r.data_key
"""

_VIEWS = f"""
CREATE VIEW all_curves AS {_CURVES};
CREATE VIEW curves AS {_CURVES}
    WHERE c.key IN (SELECT case_key FROM members WHERE current = 1);
PRAGMA user_version = {FORMAT};
"""

#: The numbers of misclassified rows are NULL where nothing is classified.
_POINTS = """
CREATE TABLE points (
    case_key INTEGER NOT NULL REFERENCES results (case_key), round INTEGER NOT NULL,
    evaluations INTEGER NOT NULL, samples INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL, microseconds INTEGER NOT NULL, train_loss REAL,
    train_wrong INTEGER, test_loss REAL, test_wrong INTEGER,
    PRIMARY KEY (case_key, round)
) WITHOUT ROWID;
"""

SCHEMA = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cases (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    data TEXT NOT NULL, problem TEXT NOT NULL, method TEXT NOT NULL, step_size REAL NOT NULL,
    run INTEGER NOT NULL, rows INTEGER, workers INTEGER NOT NULL, iterations INTEGER NOT NULL,
    batch_size INTEGER NOT NULL, budget REAL, rounds INTEGER, momentum REAL NOT NULL,
    mixture INTEGER NOT NULL, radius REAL NOT NULL, regularization REAL NOT NULL,
    points INTEGER NOT NULL, digest TEXT, settings TEXT
);
CREATE TABLE members (
    item TEXT NOT NULL, case_key INTEGER NOT NULL REFERENCES cases (key),
    current INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (item, case_key)
) WITHOUT ROWID;
CREATE TABLE machines (key INTEGER PRIMARY KEY, description TEXT NOT NULL UNIQUE);
CREATE TABLE data_sets (
    key INTEGER PRIMARY KEY, name TEXT NOT NULL, train_rows INTEGER NOT NULL,
    test_rows INTEGER NOT NULL, n INTEGER NOT NULL, density REAL NOT NULL,
    generated INTEGER NOT NULL, origin TEXT NOT NULL,
    UNIQUE (name, train_rows, test_rows, n, density, generated, origin)
);
CREATE TABLE results (
    case_key INTEGER PRIMARY KEY REFERENCES cases (key),
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')), message TEXT NOT NULL,
    data_key INTEGER REFERENCES data_sets (key), machine_key INTEGER REFERENCES machines (key),
    version TEXT NOT NULL, seed INTEGER NOT NULL, finished TEXT NOT NULL,
    rounds INTEGER, paper_rounds_each REAL, seconds REAL, cpu_seconds REAL, wall_seconds REAL
);
{_POINTS}
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, process TEXT NOT NULL, beat REAL NOT NULL
);
CREATE TABLE claims (
    case_key INTEGER PRIMARY KEY REFERENCES cases (key),
    session_key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE
);
{_VIEWS}
"""

#: Required in every format.
TABLES = {
    "about", "cases", "members", "machines", "data_sets", "results", "points", "sessions", "claims",
}  # fmt: skip

_TO_3 = f"""
ALTER TABLE cases ADD COLUMN settings TEXT;
DROP VIEW curves;
DROP VIEW IF EXISTS all_curves;
ALTER TABLE points RENAME TO points_2;
{_POINTS}
INSERT INTO points SELECT * FROM points_2;
DROP TABLE points_2;
{_VIEWS}
"""
#: Upgrades a file of a former format.
MIGRATIONS = {
    1: f"""
        ALTER TABLE cases ADD COLUMN digest TEXT;
        ALTER TABLE members ADD COLUMN current INTEGER NOT NULL DEFAULT 1;
        {_TO_3}
    """,
    2: _TO_3,
}

#: Presents a file of a former format as one of today, without changing it.
READ = {
    1: """
        CREATE TEMP VIEW cases AS SELECT *, NULL AS digest, NULL AS settings FROM main.cases;
        CREATE TEMP VIEW members AS SELECT *, 1 AS current FROM main.members;
    """,
    2: "CREATE TEMP VIEW cases AS SELECT *, NULL AS settings FROM main.cases",
}

#: Columns of a result, and of the description of its data set.
RESULT = (
    "status", "message", "version", "seed", "finished", "rounds", "paper_rounds_each", "seconds",
    "cpu_seconds", "wall_seconds",
)  # fmt: skip
FACTS = ("name", "train_rows", "test_rows", "n", "density", "generated", "origin")
#: All results with the id of their case, their machine and their data set.
RESULTS = f"""
    SELECT c.id, r.case_key, r.data_key, {", ".join(f"r.{name}" for name in RESULT)},
        coalesce(m.description, '') AS description, {", ".join(f"d.{name}" for name in FACTS)}
    FROM results r JOIN cases c ON c.key = r.case_key
        LEFT JOIN machines m ON m.key = r.machine_key LEFT JOIN data_sets d ON d.key = r.data_key
"""

OUTCOMES = """
    SELECT c.*, r.status, r.message, r.rounds AS rounds_done, r.seconds, r.cpu_seconds,
        r.wall_seconds, r.version, r.seed, r.finished, m.description AS machine, d.train_rows,
        d.test_rows, d.n, d.density, d.generated, d.origin
    FROM results r JOIN cases c ON c.key = r.case_key
        LEFT JOIN machines m ON m.key = r.machine_key LEFT JOIN data_sets d ON d.key = r.data_key
"""
CURVES = _CURVES
#: Cases of an item or of all (NULL); current ones only (least = 1) or all (0).
WHERE_CHOSEN = """
    WHERE c.key IN (SELECT case_key FROM members
        WHERE (current = 1) >= :least AND item = coalesce(:item, item))
    ORDER BY c.key
"""
