-- Topics in nothing but SQL. No broker is named, so there is a cluster in ./minikafka-data while this runs:
--
--   spark-sql --jars "$(python -m pyspark_minikafka.shim)" -f examples/sql_only/delays.sql

CREATE TABLE delays USING minikafka OPTIONS (subscribe 'delays', topic 'delays');

INSERT INTO delays SELECT carrier AS key, cast(delay AS string) AS value
FROM VALUES ('AA', 12), ('UA', -3), ('DL', 75), ('AA', 184) AS flights(carrier, delay);

INSERT INTO delays (key, value) VALUES ('WN', '7');

SELECT cast(key AS string) AS carrier, avg(cast(cast(value AS string) AS int)) AS mean
FROM delays GROUP BY ALL ORDER BY ALL;

-- The options of a query go before those of the table.
SELECT count(*) FROM delays WITH (endingOffsets '{"delays":{"0":1}}');

-- A view has no place in the catalog, and is gone with the session.
CREATE TEMPORARY VIEW late USING minikafka OPTIONS (subscribe 'late', topic 'late');

INSERT INTO late SELECT key, value FROM delays WHERE cast(cast(value AS string) AS int) >= 60;

SELECT cast(key AS string) AS carrier, cast(value AS string) AS minutes FROM late ORDER BY ALL;

DROP TABLE delays;  -- the topic stays
