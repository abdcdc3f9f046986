//! Names that the traced program chose, made harmless where they are shown to people.

use analyzer::Place;
use model::{FunctionId, ObjectId, Tid};

use super::{Format, Names, View};
use crate::printable::printable;

/// Shows a view in which everything that came from the traced program is [`printable`].
pub(crate) fn with_printable<T>(view: &View<'_>, show: impl FnOnce(&View<'_>) -> T) -> T {
    let problems: Vec<String> = view.problems.iter().map(|problem| printable(problem)).collect();
    let names = NamesFor { names: view.names, format: Format::Text };
    show(&View { names: &names, input: &printable(view.input), problems: &problems, ..*view })
}

/// Names for an output: [`printable`] in text, as they are in JSON.
pub(crate) struct NamesFor<'a> {
    pub(crate) names: &'a dyn Names,
    pub(crate) format: Format,
}

impl NamesFor<'_> {
    fn form(&self, name: String) -> String {
        match self.format {
            Format::Text => printable(&name),
            Format::Json => name,
        }
    }
}

impl Names for NamesFor<'_> {
    fn function(&self, id: FunctionId) -> String {
        self.form(self.names.function(id))
    }

    fn thread(&self, tid: Tid) -> Option<String> {
        self.names.thread(tid).map(|name| self.form(name))
    }

    fn object_of(&self, id: FunctionId) -> Option<String> {
        self.names.object_of(id).map(|name| self.form(name))
    }

    fn object(&self, id: ObjectId) -> String {
        self.form(self.names.object(id))
    }

    fn site(&self, place: Place) -> String {
        self.form(self.names.site(place))
    }

    fn line(&self, place: Place) -> Option<String> {
        self.names.line(place).map(|name| self.form(name))
    }
}
