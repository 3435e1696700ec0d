//! Where tools come from; each source gives definitions and an invoker.
