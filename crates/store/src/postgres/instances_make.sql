-- Instances that may not be there yet. In the order of keys: two that make the same ones wait for each other,
-- never in a circle.
INSERT INTO instances (id, tenant, actor, slot, key)
SELECT nextval('instance_id'), x.tenant, x.actor, x.slot, x.key
FROM (
    SELECT e.tenant, e.actor, e.slot, e.key
    FROM unnest(:tenants::bigint[], :actors::bigint[], :slots::smallint[], :keys::text[])
        AS e(tenant, actor, slot, key)
    ORDER BY e.actor, e.key COLLATE "C"
) x
ON CONFLICT (actor, key) DO NOTHING
