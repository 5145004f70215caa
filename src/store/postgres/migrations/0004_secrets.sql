-- Keys that a server generated, so that every server of this database uses the same. Each is the
-- content of a file of the data folder, by the name of that file.
CREATE TABLE secrets (
    name text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);
