-- The fence: no row changed means that nothing of this instance's part is done. It is written also where
-- the state stays, so that every commit is seen by the next.
UPDATE instances SET version = ?5 WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND version = ?4
