-- Who holds the lock of the file knows that everybody before it is gone.
UPDATE runtime_workers SET is_live = 0 WHERE is_live = 1
