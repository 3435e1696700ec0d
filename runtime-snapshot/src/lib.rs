//! The startup snapshot of the program's world.
