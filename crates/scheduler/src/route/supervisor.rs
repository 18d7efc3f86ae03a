//! Supervisors: restart what crashed.
