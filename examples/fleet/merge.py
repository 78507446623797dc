"""Merges the small files of many runs: merge.py DATASET MERGED [RUNS-PER-FILE]

Needs the package duckdb. The merged dataset has the same tables, in files of many runs, with `run` and
`thread` as columns.
"""
import pathlib
import sys

import duckdb

TABLES = ("runs", "threads", "calls", "system_calls", "signals", "lines", "hits")


def merge(dataset, merged, runs_per_file):
    database = duckdb.connect()
    runs = sorted(path.name for path in pathlib.Path(dataset, "runs").glob("run=*"))
    for begin in range(0, len(runs), runs_per_file):
        chosen = runs[begin:begin + runs_per_file]
        for table in TABLES:
            files = [f"{dataset}/{table}/{run}/**/*.parquet" for run in chosen]
            target = pathlib.Path(merged, table)
            target.mkdir(parents=True, exist_ok=True)
            name = target / f"part-{begin // runs_per_file}.parquet"
            database.execute(
                f"copy (from read_parquet({files}, hive_partitioning = true)) to '{name}' "
                "(format parquet, compression snappy, row_group_size 1000000)"
            )


if __name__ == "__main__":
    merge(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10_000)
