//! Session log, counters, token counts.
