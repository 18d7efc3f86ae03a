//! What keeps the house.
