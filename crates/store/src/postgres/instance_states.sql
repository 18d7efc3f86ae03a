-- How far instances are: what a commit did whose answer was lost.
SELECT x.n::integer AS n
FROM unnest(:ids::bigint[], :epochs::bigint[], :versions_after::bigint[]) WITH ORDINALITY AS x(id, epoch, version, n)
CROSS JOIN LATERAL (
    SELECT i.id FROM instances i
    WHERE i.id = x.id AND i.owner = :boot::bigint AND i.epoch = x.epoch AND i.version = x.version
    OFFSET 0
) i
