//! The child side of a run; the only module that names the engine.
