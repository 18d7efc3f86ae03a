//! Tests of the poller with hooks that the crate alone has.
