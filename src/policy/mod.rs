//! Who may see and call what: rules, roles, approvals. Pure: no I/O.
