-- Dead boots, with their lanes. What one still owned stays an orphan: an owner that is not there is a dead one.
WITH old AS MATERIALIZED (
    SELECT w.boot FROM runtime_workers w WHERE NOT w.is_live ORDER BY w.boot LIMIT :rows_max::bigint
), lanes_gone AS (
    DELETE FROM lanes l WHERE l.boot = ANY (ARRAY(SELECT o.boot FROM old o))
)
DELETE FROM runtime_workers w WHERE w.boot = ANY (ARRAY(SELECT o.boot FROM old o)) RETURNING 1 AS gone
