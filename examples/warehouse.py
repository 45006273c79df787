"""A warehouse table gets a summary for each article, and only articles that changed are asked.

The way of the data: a DuckDB query → Arrow batches → `enrich_batches` → back into the table by key. Run it as
`python examples/warehouse.py BASE_URL [database file]`; it can be run again and again. It needs DuckDB, which no extra
of corpusmill brings: `pip install duckdb`.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import corpusmill

try:
    import duckdb
except ModuleNotFoundError as error:
    if error.name != "duckdb":
        raise
    sys.exit("This example needs DuckDB, which no extra of corpusmill brings: pip install duckdb")

CHANGED = """
    SELECT article.id, article.body, md5(article.body) AS version
    FROM article LEFT JOIN article_summary USING (id)
    WHERE article_summary.version IS DISTINCT FROM md5(article.body)
    ORDER BY article.id
"""

SET_UP = """
    CREATE TABLE IF NOT EXISTS article (id INTEGER PRIMARY KEY, body VARCHAR);
    CREATE TABLE IF NOT EXISTS article_summary (
        id INTEGER PRIMARY KEY, version VARCHAR, summary VARCHAR, status VARCHAR
    );
"""


def refresh_summaries(connection: duckdb.DuckDBPyConnection, endpoint: corpusmill.OpenAICompatible) -> int:
    """Ask for the summaries of new and changed articles, and merge them in; give the number of rows asked."""
    batches = corpusmill.enrich_batches(
        connection.sql(CHANGED).to_arrow_reader(1_000),
        corpusmill.Summarise("body", "summary", length="one sentence"),
        endpoint=endpoint,
        columns=["id", "version"],
    )
    asked = 0
    for batch in batches:
        connection.register("answered", pa.Table.from_batches([batch]))
        connection.execute(
            "INSERT OR REPLACE INTO article_summary "
            "SELECT id, version, summary, summary_outcome.status FROM answered"
        )
        asked += batch.num_rows
    return asked


def main(base_url: str, database: str) -> None:
    """Fill the table the first time, change one article each time, and bring the summaries up to date."""
    connection = duckdb.connect(database)
    connection.execute(SET_UP)
    rows = connection.execute("SELECT count(*) FROM article").fetchone()
    if rows == (0,):
        bodies = [
            (number, f"Article {number} is about the number {number}. It says no more.")
            for number in range(50)
        ]
        connection.executemany("INSERT INTO article VALUES (?, ?)", bodies)
    else:
        connection.execute("UPDATE article SET body = body || ' It was changed.' WHERE id = 7")
    asked = refresh_summaries(connection, corpusmill.OpenAICompatible(base_url, "any"))
    print(f"{asked} articles were new or changed and have a fresh summary")
    print(connection.sql("SELECT * FROM article_summary ORDER BY id LIMIT 9 OFFSET 5"))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(
            "usage: python examples/warehouse.py BASE_URL [database file]\n"
            "with BASE_URL such as http://127.0.0.1:8000/v1, where `corpusmill fake-endpoint` listens"
        )
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "articles.duckdb")
