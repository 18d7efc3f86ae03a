-- The fence, with a new state.
UPDATE instances SET version = ?5, state = ?6 WHERE id = ?1 AND owner = ?2 AND epoch = ?3 AND version = ?4
