-- Events that a batch appended, when its answer was lost: those that its transaction wrote, between the places
-- that it drew.
SELECT e.seq
FROM lanes l
CROSS JOIN LATERAL (
    SELECT e.seq FROM events e
    WHERE e.seq BETWEEN l.seq_first AND l.seq_last AND e.xmin = l.xmin
    OFFSET 0
) e
WHERE l.boot = :boot::bigint AND l.lane = :lane::integer
ORDER BY e.seq
