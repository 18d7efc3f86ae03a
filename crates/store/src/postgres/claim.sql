-- Makes a boot the owner of instances that have none, or a dead one, or itself, and that have rows waiting. A
-- boot that is not there any more is a dead one.
WITH me AS MATERIALIZED (
    SELECT w.boot FROM runtime_workers w WHERE w.boot = :boot::bigint AND w.is_live
), free AS MATERIALIZED (
    SELECT i.id, i.owner
    FROM me CROSS JOIN unnest(:ids::bigint[]) AS x(id)
    CROSS JOIN LATERAL (
        SELECT i.id, i.owner FROM instances i
        WHERE i.id = x.id
          AND (i.owner IS NULL OR i.owner = :boot::bigint
               OR NOT EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = i.owner AND w.is_live))
          AND EXISTS (SELECT 1 FROM queue q WHERE q.slot = i.slot AND q.instance = i.id OFFSET 0)
        FOR NO KEY UPDATE SKIP LOCKED
    ) i
), taken AS (
    UPDATE instances i
    SET owner = :boot::bigint, epoch = i.epoch + 1
    WHERE i.id = ANY (ARRAY(SELECT f.id FROM free f))
      AND (i.owner IS NULL OR i.owner = :boot::bigint
           OR NOT EXISTS (SELECT 1 FROM runtime_workers w WHERE w.boot = i.owner AND w.is_live))
    RETURNING i.id, i.slot, i.tenant, i.actor, i.key, i.epoch, i.version, i.state
)
SELECT t.id, t.slot, t.tenant, t.actor, t.key, t.epoch, t.version, t.state,
       t.id = ANY (ARRAY(SELECT f.id FROM free f WHERE f.owner <> :boot::bigint)) AS was_orphan
FROM taken t
