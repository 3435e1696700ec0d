//! Which model does which work.
//!
//! Pure: the same task class and the same configuration give the same model. Without routing everything is the main model's.

use std::collections::BTreeMap;

use super::task::TaskClass;

/// The models of one loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// The model that was asked for, or the configured one.
    main: String,
    /// By class of task; used when the caller named no model of its own.
    by_class: BTreeMap<TaskClass, String>,
    /// For small jobs of the loop itself.
    small: Option<String>,
}

impl Routing {
    /// `main` for everything but what `by_class` and `small` say.
    pub fn new(main: impl Into<String>, by_class: BTreeMap<TaskClass, String>, small: Option<String>) -> Self {
        Self { main: main.into(), by_class, small }
    }

    /// The model that works on a task of this class.
    pub fn for_class(&self, class: TaskClass) -> &str {
        self.by_class.get(&class).unwrap_or(&self.main)
    }

    /// The model for small jobs, if there is one.
    pub fn small(&self) -> Option<&str> {
        self.small.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_a_model_of_its_own_is_the_main_models() {
        let routing = Routing::new("main", BTreeMap::from([(TaskClass::Lookup, "mini".to_owned())]), None);
        assert_eq!(routing.for_class(TaskClass::Lookup), "mini");
        assert_eq!(routing.for_class(TaskClass::Change), "main");
        assert_eq!(routing.small(), None);
    }
}
