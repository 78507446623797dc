"""Makes a large merged dataset from a small one: simulate.py MERGED LARGE RUNS

Each run is one of the recorded runs, drawn by a hash of its number, under another name, so the shares of
failing runs and the distribution of all values stay. Needs the package duckdb.
"""
import pathlib
import sys
import time

import duckdb

RUNS_PER_FILE = 10_000


def simulate(merged, large, runs):
    database = duckdb.connect()
    database.execute(f"create table known as select run, row_number() over (order by run) - 1 as n "
                     f"from read_parquet('{merged}/runs/*.parquet')")
    count = database.execute("select count(*) from known").fetchone()[0]
    for table in ("runs", "calls"):
        database.execute(f"create table {table} as from read_parquet('{merged}/{table}/*.parquet')")
    begin = time.monotonic()
    for first in range(0, runs, RUNS_PER_FILE):
        last = min(first + RUNS_PER_FILE, runs)
        for table in ("runs", "calls"):
            target = pathlib.Path(large, table)
            target.mkdir(parents=True, exist_ok=True)
            name = target / f"part-{first // RUNS_PER_FILE}.parquet"
            database.execute(
                f"copy (select {table}.* replace ('run-' || lpad(i::varchar, 9, '0') as run) "
                f"from range({first}, {last}) as drawn(i) join known on n = hash(i) % {count} "
                f"join {table} using (run)) to '{name}' "
                "(format parquet, compression snappy, row_group_size 1000000)"
            )
    print(f"{runs} runs: {time.monotonic() - begin:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    simulate(sys.argv[1], sys.argv[2], int(sys.argv[3]))
