//! Which module's items a module names: `use` declarations and paths, as text.

use std::collections::{BTreeMap, BTreeSet};

use super::super::tree::Tree;

/// A module, by its names from the crate's root on.
pub(super) type Module = Vec<String>;

/// The modules of one crate that have a file, without those of its tests.
pub(super) struct Crate<'t> {
    pub(super) directory: &'t str,
    modules: BTreeMap<Module, File>,
}

/// What a module's file names.
struct File {
    /// Paths, from the crate's root on.
    paths: Vec<Vec<String>>,
    /// What its own `use` declarations bring in, by the last name.
    imports: BTreeMap<String, Vec<String>>,
}

impl<'t> Crate<'t> {
    pub(super) fn read(tree: &Tree, directory: &'t str) -> Self {
        let prefix = format!("{directory}/");
        let inside = |path: &'_ str| {
            path.strip_prefix(&prefix).and_then(|path| path.strip_suffix(".rs")).map(str::to_owned)
        };
        let texts: BTreeMap<Module, String> = tree
            .texts(".rs")
            .filter_map(|(path, text)| Some((module(&inside(path)?), without_tests(text))))
            .collect();
        let tests: BTreeSet<Module> =
            texts.iter().flat_map(|(module, text)| test_modules(module, text)).collect();
        let is_test = |module: &Module| (1..=module.len()).any(|len| tests.contains(&module[..len]));
        let names: BTreeSet<&Module> = texts.keys().collect();
        let file = |(module, text): (&Module, &String)| {
            let code = code(text);
            (module.clone(), File { paths: paths(&code, module), imports: imports(&code, module, &names) })
        };
        let modules = texts.iter().filter(|(module, _)| !is_test(module)).map(file).collect();
        Self { directory, modules }
    }

    /// Each module with each that it uses.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&Module, Module)> {
        let used = move |file: &File| -> BTreeSet<Module> {
            file.paths.iter().map(|path| self.module_of(path)).collect()
        };
        self.modules
            .iter()
            .flat_map(move |(module, file)| used(file).into_iter().map(move |used| (module, used)))
    }

    /// The module that a path leads to, also by way of what a module has brought in.
    fn module_of(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        // Names of names end; this only bounds what is no Rust.
        for _ in 0..8 {
            let len =
                (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len])).unwrap_or(0);
            let item = path.get(len);
            let import = item.and_then(|item| self.modules.get(&path[..len])?.imports.get(item));
            match import {
                Some(import) if *import != path => path.clone_from(import),
                _ => return path[..len].to_vec(),
            }
        }
        Module::new()
    }
}

/// The module of a file: `clock/mod` and `clock` are `clock`, `lib` and `main` the root.
fn module(path: &str) -> Module {
    let mut names: Module = path.split('/').map(str::to_owned).collect();
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_root || names.last().is_some_and(|last| last == "mod") {
        names.pop();
    }
    names
}

/// A file without the tests at its end.
fn without_tests(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {");
    text[..tests.unwrap_or(text.len())].to_owned()
}

/// The modules that a file declares for tests.
fn test_modules(module: &Module, text: &str) -> Vec<Module> {
    let after = text.split("#[cfg(test)]\n").skip(1);
    let name = |rest: &str| {
        rest.lines()
            .next()?
            .trim()
            .trim_start_matches("pub(crate) ")
            .strip_prefix("mod ")?
            .strip_suffix(';')
            .map(str::to_owned)
    };
    after.filter_map(name).map(|name| module.iter().cloned().chain([name]).collect()).collect()
}

/// The text without comments.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// All paths that begin at the crate's root or at a parent.
fn paths(code: &str, module: &Module) -> Vec<Vec<String>> {
    let starts =
        ["crate::", "super::"].into_iter().flat_map(|word| code.match_indices(word).map(|(at, _)| at));
    let begins = |at: &usize| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    starts.filter(begins).flat_map(|at| expand(&code[at..], module)).collect()
}

/// What a module's own `use` declarations bring in.
fn imports(code: &str, module: &Module, modules: &BTreeSet<&Module>) -> BTreeMap<String, Vec<String>> {
    let begins = |at: &usize| {
        let line = code[..*at].rsplit('\n').next().unwrap_or_default().trim();
        matches!(line, "" | "pub" | "pub(crate)" | "pub(super)")
    };
    let declarations = code.match_indices("use ").map(|(at, _)| at).filter(begins);
    let expanded = declarations.flat_map(|at| {
        let text = &code[at + "use ".len()..];
        if text.starts_with("crate::") || text.starts_with("super::") {
            return expand(text, module);
        }
        // A path of a module below this one, or of another crate.
        let mut paths = tree(text).0;
        paths.retain_mut(|path| {
            path.splice(0..0, module.iter().cloned());
            path.get(..=module.len()).is_some_and(|own| modules.contains(&own.to_vec()))
        });
        paths
    });
    expanded.filter_map(|path| Some((path.last()?.clone(), path))).collect()
}

/// The paths that begin with `crate::` or `super::` here, from the crate's root on.
fn expand(text: &str, module: &Module) -> Vec<Vec<String>> {
    let (mut rest, mut base) = (text, module.clone());
    if let Some(after) = rest.strip_prefix("crate::") {
        (rest, base) = (after, Module::new());
    }
    while let Some(after) = rest.strip_prefix("super::") {
        base.pop();
        rest = after;
    }
    tree(rest).0.into_iter().map(|path| base.iter().cloned().chain(path).collect()).collect()
}

/// The paths of a `use` tree, and what follows it.
fn tree(text: &str) -> (Vec<Vec<String>>, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        while !rest.trim_start().starts_with('}') && !rest.is_empty() {
            let (paths, after) = tree(rest);
            all.extend(paths);
            let after = after.trim_start();
            let next = after.strip_prefix(',').unwrap_or(after);
            if next.len() == rest.len() {
                break; // no `use` tree
            }
            rest = next;
        }
        return (all, rest.trim_start().strip_prefix('}').unwrap_or(rest));
    }
    let len = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(len);
    if let Some(after) = rest.strip_prefix("::") {
        let (paths, rest) = tree(after);
        let with_name = |path: Vec<String>| [name.to_owned()].into_iter().chain(path).collect();
        return (paths.into_iter().map(with_name).collect(), rest);
    }
    // `self` is what stands before it.
    let path = if name.is_empty() || name == "self" { vec![] } else { vec![name.to_owned()] };
    (vec![path], rest)
}
