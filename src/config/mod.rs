//! Configuration files to validated settings; the only reader of the environment.
