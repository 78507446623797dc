"""Runs separate.sql on a dataset: separate.py duckdb|spark DATASET

Needs the package duckdb, or pyspark and Java. Prints the rows, and the seconds that they took.
"""
import pathlib
import sys
import time

QUERY = pathlib.Path(__file__).with_name("separate.sql").read_text()
TABLES = ("runs", "calls")


def by_duckdb(dataset):
    import duckdb

    database = duckdb.connect()
    for table in TABLES:
        files = f"read_parquet('{dataset}/{table}/**/*.parquet', hive_partitioning = true)"
        database.execute(f"create view {table} as from {files}")
    begin = time.monotonic()
    rows = database.execute(QUERY).fetchall()
    return rows, time.monotonic() - begin


def by_spark(dataset):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]")
    session = session.config("spark.ui.enabled", "false")
    session = session.config("spark.sql.shuffle.partitions", "8").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    begin = time.monotonic()
    for table in TABLES:
        session.read.parquet(f"{dataset}/{table}").createOrReplaceTempView(table)
    rows = [tuple(row) for row in session.sql(QUERY).collect()]
    return rows, time.monotonic() - begin


if __name__ == "__main__":
    engine, dataset = sys.argv[1:3]
    rows, seconds = {"duckdb": by_duckdb, "spark": by_spark}[engine](dataset)
    for row in rows:
        print(*row, sep="\t")
    print(f"{engine}: {seconds:.2f} s", file=sys.stderr)
