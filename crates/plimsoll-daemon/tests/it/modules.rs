//! The daemon's modules depend on each other one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// Which of the crate's modules each of them names, outside of tests and comments.
fn imports(root: &Path) -> Imports {
    let mut imports = Imports::new();
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if let Some(module) = name.strip_suffix(".rs").filter(|name| *name != "lib") {
            let mut named = imports.remove(module).unwrap_or_default();
            read(&entry.path(), &mut named);
            imports.insert(module.to_owned(), named);
        } else if entry.path().is_dir() {
            let mut named = imports.remove(&name).unwrap_or_default();
            read_all(&entry.path(), &mut named);
            imports.insert(name, named);
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, named) in &mut imports {
        named.retain(|name| modules.contains(name) && name != module);
    }
    imports
}

fn read_all(dir: &Path, named: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.trim_end_matches(".rs") == "tests" {
            continue;
        }
        if entry.path().is_dir() {
            read_all(&entry.path(), named);
        } else {
            read(&entry.path(), named);
        }
    }
}

fn read(file: &Path, named: &mut BTreeSet<String>) {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    for path in code.split("crate::").skip(1) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let first =
            |path: &str| path.trim_start().split(|c| !is_word(c)).next().unwrap().to_owned();
        if let Some(list) = path.strip_prefix('{') {
            // Only what stands at the top of the list is a module of the crate.
            let mut depth = 0;
            let outer = list.chars().take_while(|c| {
                depth += i32::from(*c == '{') - i32::from(*c == '}');
                depth >= 0
            });
            named.extend(outer.collect::<String>().split(',').map(first));
        } else {
            named.insert(first(path));
        }
    }
}

/// The modules on a way that leads back to where it began.
fn cycle(imports: &Imports) -> Option<Vec<String>> {
    fn walk(imports: &Imports, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let last = way.last().expect("a way begins somewhere").clone();
        for next in imports.get(&last).into_iter().flatten() {
            if let Some(at) = way.iter().position(|it| it == next) {
                way.drain(..at);
                return true;
            }
            if done.contains(next) {
                continue;
            }
            way.push(next.clone());
            if walk(imports, way, done) {
                return true;
            }
            way.pop();
        }
        done.insert(last);
        false
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|start| {
        let mut way = vec![start.clone()];
        (!done.contains(start) && walk(imports, &mut way, &mut done)).then_some(way)
    })
}

#[test]
fn no_module_of_the_daemon_depends_on_itself_through_others() {
    let imports = imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(imports["api"].contains("operations"), "imports are found: {imports:?}");
    assert_eq!(cycle(&imports), None);
}

#[test]
fn a_cycle_is_found_and_named() {
    let named = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let mut imports: Imports = [("a", &["b", "d"][..]), ("b", &["c"]), ("c", &[]), ("d", &["b"])]
        .into_iter()
        .map(|(module, names)| (module.to_owned(), named(names)))
        .collect();
    assert_eq!(cycle(&imports), None);
    imports.insert("c".to_owned(), named(&["d"]));
    assert_eq!(cycle(&imports).unwrap(), ["b", "c", "d"]);
}
