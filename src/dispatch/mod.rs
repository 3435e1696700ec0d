//! The one path to a side effect: resolve, scope, validate, policy, hooks, approval, schedule, execute, bound, record.
