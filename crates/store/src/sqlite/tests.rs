//! What only this back end has: its file, its lock, its errors.
