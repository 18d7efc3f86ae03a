-- Before somebody else changes rows of an instance: its owner's commits are refused from here on.
UPDATE instances SET epoch = epoch + 1
WHERE id = ?1 AND EXISTS (SELECT 1 FROM keys k WHERE k.id = ?1 AND k.slot = ?2)
