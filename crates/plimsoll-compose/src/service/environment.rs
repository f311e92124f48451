//! The environment of a container: files in their order, then `environment`, which wins.

use std::collections::BTreeMap;
use std::io;

use plimsoll_model::spec::ContainerSpec;

use super::ServiceContext;
use crate::diagnostic::{Finding, SourceSpan};
use crate::dotenv::EnvFileFormat;
use crate::fields::Section;
use crate::keys::KeyReader;
use crate::paths::join;
use crate::yaml::{Mapping, Value, YamlNode};
use crate::{Files, read};

/// A file named by `env_file`.
struct EnvFile {
    path: String,
    span: SourceSpan,
    is_required: bool,
    format: EnvFileFormat,
}

pub(super) fn fill(
    context: &mut ServiceContext<'_>,
    service: &Mapping,
    container: &mut ContainerSpec,
) {
    for file in env_files(context, service) {
        if !read_file(context, &file, &mut container.environment) {
            return;
        }
    }
    let Some(entry) = service.get("environment") else { return };
    for pair in read::pairs(context.report, entry) {
        // A name alone takes the shell's value; what the shell does not have, the container does not get.
        let value = pair.value.or_else(|| context.options.env.get(&pair.key).cloned());
        match value {
            Some(value) => {
                if !context.carry(pair.key.len() + value.len(), pair.span) {
                    return;
                }
                container.environment.insert(pair.key, value);
            }
            None => {
                container.environment.remove(&pair.key);
            }
        }
    }
}

fn env_files(context: &mut ServiceContext<'_>, service: &Mapping) -> Vec<EnvFile> {
    let Some(entry) = service.get("env_file") else { return Vec::new() };
    match &entry.node.value {
        Value::Sequence(items) => items.iter().filter_map(|item| env_file(context, item)).collect(),
        _ => env_file(context, &entry.node).into_iter().collect(),
    }
}

fn env_file(context: &mut ServiceContext<'_>, node: &YamlNode) -> Option<EnvFile> {
    let Some(mapping) = node.as_mapping() else {
        let path = read::text_of(context.report, "env_file", node)?;
        return Some(EnvFile {
            path,
            span: node.span,
            is_required: true,
            format: EnvFileFormat::Quoted,
        });
    };
    let mut keys = KeyReader::checked(context.report, Section::EnvFile, mapping);
    let is_required = keys.boolean("required").unwrap_or(true);
    let format =
        keys.word("format", &[("raw", EnvFileFormat::Raw)]).unwrap_or(EnvFileFormat::Quoted);
    let Some(path) = keys.text("path") else {
        keys.report.error(node.span, "an entry of `env_file` needs `path`");
        return None;
    };
    let span = mapping.get("path").map_or(node.span, |entry| entry.node.span);
    Some(EnvFile { path, span, is_required, format })
}

/// Adds the lines of a file; `false` once the deployment carries too much.
fn read_file(
    context: &mut ServiceContext<'_>,
    file: &EnvFile,
    environment: &mut BTreeMap<String, String>,
) -> bool {
    let lines = match context.env_file(&file.path, file.format) {
        Ok(lines) => lines,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_required => return true,
        Err(error) => {
            let problem = Finding::new(file.span, format!("cannot read {}: {error}", file.path));
            let hint = match example(context.files, &file.path) {
                Some(example) => format!("copy {example} to {} and fill it in", file.path),
                None => "`required: false` allows an env file to be missing".to_owned(),
            };
            context.report.push(problem.hint(hint));
            return true;
        }
    };
    let env = &context.options.env;
    for (key, value) in lines.iter() {
        let Some(value) = value.as_ref().or_else(|| env.get(key)) else { continue };
        if !context.carry(key.len() + value.len(), file.span) {
            return false;
        }
        environment.insert(key.clone(), value.clone());
    }
    true
}

/// What repositories keep beside an env file that they do not.
fn example(files: &dyn Files, path: &str) -> Option<String> {
    let endings = [".example", ".sample", ".dist", ".template", ".tmpl"];
    let (directory, name) = path.rsplit_once('/').map_or(("", path), |(at, name)| (at, name));
    let beside = |name: String| join(directory, &name);
    let stem = name.strip_suffix(".env").filter(|stem| !stem.is_empty());
    let others = [stem.map(|stem| format!("{stem}.example.env")), Some(format!("example{name}"))];
    let named = endings.iter().map(|ending| format!("{name}{ending}"));
    named.chain(others.into_iter().flatten()).map(beside).find(|path| files.read(path).is_ok())
}
