//! Finding the right tool for a query; the only user of tantivy.
