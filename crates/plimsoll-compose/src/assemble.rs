//! All files of a project as one tree: those of the command line, those they include, and the services they extend.
//!
//! Files are read where the command runs, with the rights of who runs it, and nowhere else: a server never opens a path that a
//! compose file names. Once a file is read its paths are relative to the project's directory, whichever directory it is in.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::diagnostic::{Finding, Findings, SourceSpan};
use crate::dotenv::{self, EnvFileFormat};
use crate::fields::{Section, nearest};
use crate::interpolate::{self, Variables};
use crate::keys::KeyReader;
use crate::paths::{directory_of, is_remote, join, rebase};
use crate::yaml::{Mapping, Value, YamlEntry, YamlNode};
use crate::{ComposeSource, Files, LoadOptions, merge, name, read, yaml};

/// Files that one project reads. Projects of a hundred services have a file for each.
const MAX_FILES: usize = 500;

/// How often a service extends one that extends another, and a file includes one that includes another.
const MAX_CHAIN: usize = 32;

/// What an included file may declare, and the including one must not declare otherwise.
const DECLARATIONS: [&str; 5] = ["services", "networks", "volumes", "configs", "secrets"];

/// All files as one tree, variables filled in.
pub(crate) fn tree(
    report: &mut Findings,
    sources: &[ComposeSource],
    options: &LoadOptions,
    files: &dyn Files,
) -> Option<Rc<YamlNode>> {
    if sources.is_empty() {
        report.refuse_file("compose.yaml", "there is no file to read", "name one with `-f`");
        return None;
    }
    let parse = |source: &ComposeSource| yaml::parse(report, &source.name, &source.text, true);
    let parsed: Vec<_> = sources.iter().map(parse).collect();
    let parsed = parsed.into_iter().collect::<Option<Vec<_>>>()?;

    let mut env = options.env.clone();
    let early = name::early(options, parsed.iter().map(Rc::as_ref));
    env.insert(name::VARIABLE.to_owned(), early);
    let mut assembly =
        Assembly { report, files, environments: vec![env], trees: BTreeMap::new(), read: 0 };
    let mut chain = Vec::new();
    let mut whole = Vec::new();
    for (source, root) in sources.iter().zip(&parsed) {
        let root = assembly.fill(root, 0)?;
        chain.push(source.name.clone());
        whole.push(assembly.finish(&root, &source.name, 0, &mut chain)?);
        chain.pop();
    }
    merge::all(report, whole)
}

struct Assembly<'a> {
    report: &'a mut Findings,
    files: &'a dyn Files,
    /// What variables are filled in from: that of the command line first, then those of included projects.
    environments: Vec<BTreeMap<String, String>>,
    /// Files that were read, by path, environment and the directory that their paths are relative to.
    trees: BTreeMap<(String, usize, String), Option<Rc<YamlNode>>>,
    read: usize,
}

/// What one entry of `include` names.
struct Inclusion {
    paths: Vec<read::Text>,
    directory: Option<String>,
    env_files: Vec<read::Text>,
}

impl Assembly<'_> {
    fn fill(&mut self, root: &Rc<YamlNode>, env: usize) -> Option<Rc<YamlNode>> {
        let mut variables = Variables::new(&self.environments[env]);
        let filled = interpolate::tree(self.report, root, &mut variables);
        yaml::within_bounds(self.report, &filled).then_some(filled)
    }

    /// A file that another one names, its variables filled in and its paths relative to the project.
    fn file(
        &mut self,
        path: &str,
        span: SourceSpan,
        env: usize,
        directory: &str,
    ) -> Option<Rc<YamlNode>> {
        let key = (path.to_owned(), env, directory.to_owned());
        if let Some(tree) = self.trees.get(&key) {
            return tree.clone();
        }
        let tree = self.read_file(path, span, env, directory);
        self.trees.insert(key, tree.clone());
        tree
    }

    fn read_file(
        &mut self,
        path: &str,
        span: SourceSpan,
        env: usize,
        directory: &str,
    ) -> Option<Rc<YamlNode>> {
        self.read += 1;
        if self.read > MAX_FILES {
            self.report.error(span, format!("the project reads more than {MAX_FILES} files"));
            return None;
        }
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let problem = Finding::new(span, format!("cannot read {path}: {error}"));
                self.report.push(problem.hint("paths are relative to the file that names them"));
                return None;
            }
        };
        let root = yaml::parse(self.report, path, &bytes, false)?;
        let filled = self.fill(&root, env)?;
        Some(rebase(&filled, directory))
    }

    /// A file with what its services extend and what it includes.
    fn finish(
        &mut self,
        root: &Rc<YamlNode>,
        file: &str,
        env: usize,
        chain: &mut Vec<String>,
    ) -> Option<Rc<YamlNode>> {
        let extended = self.extend_all(root, file, env);
        self.include_all(&extended, env, chain)
    }

    fn extend_all(&mut self, root: &Rc<YamlNode>, file: &str, env: usize) -> Rc<YamlNode> {
        let Some((entry, services)) = declarations(root, "services") else {
            return Rc::clone(root);
        };
        let extends = |entry: &YamlEntry| {
            entry.node.as_mapping().is_some_and(|service| service.entry("extends").is_some())
        };
        if !services.entries().iter().any(extends) {
            return Rc::clone(root);
        }
        let mut extended = services.clone();
        for service in services.entries().iter().filter(|entry| extends(entry)) {
            let node = self.extend(services, service, file, env, &mut Vec::new());
            extended.set(YamlEntry { node, ..service.clone() });
        }
        with(root, entry, Value::Mapping(extended))
    }

    /// A service laid over what it extends, as a later file is laid over an earlier one.
    fn extend(
        &mut self,
        services: &Mapping,
        service: &YamlEntry,
        file: &str,
        env: usize,
        chain: &mut Vec<String>,
    ) -> Rc<YamlNode> {
        let Some(mapping) = service.node.as_mapping() else { return Rc::clone(&service.node) };
        let Some(extends) = mapping.entry("extends") else { return Rc::clone(&service.node) };
        let rest = mapping.entries().iter().filter(|entry| entry.key != "extends").cloned();
        let rest = Value::Mapping(rest.collect());
        let own = Rc::new(YamlNode::new(service.node.span, service.node.tag, rest));
        if extends.node.is_null() {
            return own;
        }
        let step = format!("{} ({file})", service.key);
        if chain.contains(&step) || chain.len() >= MAX_CHAIN {
            let from = chain.iter().position(|earlier| *earlier == step).unwrap_or_default();
            let circle = chain[from..].iter().chain([&step]).cloned().collect::<Vec<_>>();
            let message = format!("`extends` goes in a circle: {}", circle.join(" → "));
            self.report.error(extends.node.span, message);
            return own;
        }
        chain.push(step);
        let base = self.base(services, service, extends, file, env, chain);
        chain.pop();
        match base {
            Some(base) => merge::service(self.report, &service.key, &base, &own),
            None => own,
        }
    }

    /// What a service extends, whole.
    fn base(
        &mut self,
        services: &Mapping,
        service: &YamlEntry,
        extends: &YamlEntry,
        file: &str,
        env: usize,
        chain: &mut Vec<String>,
    ) -> Option<Rc<YamlNode>> {
        let (wanted, path) = self.extended(extends)?;
        let Some(path) = path else {
            let base = self.find(services, service, &wanted, file)?;
            return Some(self.extend(services, base, file, env, chain));
        };
        if is_remote(&path.text) {
            self.refuse_remote("extends", &path);
            return None;
        }
        let root = self.file(&path.text, path.span, env, &directory_of(&path.text))?;
        let nothing = Mapping::default();
        let services = declarations(&root, "services").map_or(&nothing, |(_, services)| services);
        let base = self.find(services, service, &wanted, &path.text)?;
        Some(self.extend(services, base, &path.text, env, chain))
    }

    /// The service that `extends` names, and the file where it names one.
    fn extended(&mut self, extends: &YamlEntry) -> Option<(read::Text, Option<read::Text>)> {
        let Some(mapping) = extends.node.as_mapping() else {
            let text = read::text(self.report, extends)?;
            return Some((read::Text { text, span: extends.node.span }, None));
        };
        let mut keys = KeyReader::checked(self.report, Section::Extends, mapping);
        let mut placed = |key: &str| {
            let span = keys.get(key)?.node.span;
            keys.text(key).map(|text| read::Text { text, span })
        };
        let (service, file) = (placed("service"), placed("file"));
        if service.is_none() && mapping.get("service").is_none() {
            self.report.error(extends.key_span, "`extends` needs `service`");
        }
        Some((service?, file))
    }

    fn find<'n>(
        &mut self,
        services: &'n Mapping,
        service: &YamlEntry,
        wanted: &read::Text,
        file: &str,
    ) -> Option<&'n YamlEntry> {
        let found = services.entry(&wanted.text);
        if found.is_none() {
            let message = format!(
                "service \"{}\" extends \"{}\", and {file} has no such service",
                service.key, wanted.text
            );
            let problem = Finding::new(wanted.span, message);
            let known = services.entries().iter().map(|entry| entry.key.as_str());
            self.report.push(match nearest(&wanted.text, known) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint("name its file with `file:`"),
            });
        }
        found
    }

    fn include_all(
        &mut self,
        root: &Rc<YamlNode>,
        env: usize,
        chain: &mut Vec<String>,
    ) -> Option<Rc<YamlNode>> {
        let Some(entry) = root.as_mapping().and_then(|top| top.get("include")) else {
            return Some(Rc::clone(root));
        };
        let mut whole = Rc::clone(root);
        for item in read::items(self.report, entry) {
            let Some(inclusion) = self.inclusion(item) else { continue };
            let included = self.include(&inclusion, env, chain)?;
            whole = self.import(&whole, &included, item.span);
        }
        Some(whole)
    }

    fn inclusion(&mut self, item: &Rc<YamlNode>) -> Option<Inclusion> {
        let Some(mapping) = item.as_mapping() else {
            let text = read::text_of(self.report, "include", item)?;
            let paths = vec![read::Text { text, span: item.span }];
            return Some(Inclusion { paths, directory: None, env_files: Vec::new() });
        };
        let mut keys = KeyReader::checked(self.report, Section::Include, mapping);
        let directory = keys.text("project_directory");
        let mut texts = |key: &str| {
            let entry = mapping.get(key);
            entry.map(|entry| read::one_or_many(self.report, entry)).unwrap_or_default()
        };
        let (paths, env_files) = (texts("path"), texts("env_file"));
        if paths.is_empty() {
            self.report.error(item.span, "an entry of `include` needs `path`");
            return None;
        }
        Some(Inclusion { paths, directory, env_files })
    }

    /// What an entry of `include` names, as one tree.
    fn include(
        &mut self,
        inclusion: &Inclusion,
        env: usize,
        chain: &mut Vec<String>,
    ) -> Option<Rc<YamlNode>> {
        let first = &inclusion.paths.first()?.text;
        let directory = inclusion.directory.clone().unwrap_or_else(|| directory_of(first));
        let env = self.environment(inclusion, &directory, env)?;
        let mut whole = Vec::new();
        for path in &inclusion.paths {
            if is_remote(&path.text) {
                self.refuse_remote("include", path);
                return None;
            }
            if chain.contains(&path.text) || chain.len() >= MAX_CHAIN {
                let circle = chain.iter().chain([&path.text]).cloned().collect::<Vec<_>>();
                let message = format!("`include` goes in a circle: {}", circle.join(" → "));
                self.report.error(path.span, message);
                return None;
            }
            let root = self.file(&path.text, path.span, env, &directory)?;
            chain.push(path.text.clone());
            whole.push(self.finish(&root, &path.text, env, chain)?);
            chain.pop();
        }
        merge::all(self.report, whole)
    }

    /// What an included project fills its variables in from: the including one's, then its own env files, by default the
    /// `.env` of its directory.
    fn environment(
        &mut self,
        inclusion: &Inclusion,
        directory: &str,
        outer: usize,
    ) -> Option<usize> {
        let mut own = BTreeMap::new();
        let default = [read::Text { text: join(directory, ".env"), span: inclusion.paths[0].span }];
        let is_default = inclusion.env_files.is_empty();
        let files = if is_default { &default[..] } else { &inclusion.env_files[..] };
        for file in files {
            let bytes = match self.files.read(&file.text) {
                Ok(bytes) => bytes,
                Err(error) if is_default && error.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => {
                    self.report.error(file.span, format!("cannot read {}: {error}", file.text));
                    return None;
                }
            };
            let outer = &self.environments[outer];
            let format = EnvFileFormat::Quoted;
            for (key, value) in dotenv::parse(self.report, &file.text, &bytes, format, outer) {
                own.extend(value.map(|value| (key, value)));
            }
        }
        own.retain(|key, _| !self.environments[outer].contains_key(key));
        if own.is_empty() {
            return Some(outer);
        }
        own.extend(self.environments[outer].clone());
        self.environments.push(own);
        Some(self.environments.len() - 1)
    }

    /// Adds what an included file declares. What both declare must be the same.
    fn import(
        &mut self,
        root: &Rc<YamlNode>,
        included: &Rc<YamlNode>,
        span: SourceSpan,
    ) -> Rc<YamlNode> {
        let mut whole = Rc::clone(root);
        for kind in DECLARATIONS {
            let Some((theirs, declared)) = declarations(included, kind) else { continue };
            let own = whole.as_mapping().and_then(|top| top.get(kind)).cloned();
            let mut merged = match own.as_ref().map(|own| own.node.as_mapping()) {
                Some(Some(mapping)) => mapping.clone(),
                // It is no mapping, which is said when it is read.
                Some(None) => continue,
                None => Mapping::default(),
            };
            for entry in declared.entries() {
                match merged.entry(&entry.key) {
                    Some(known) if known.node.is_like(&entry.node) => {}
                    Some(known) => {
                        let noun = kind.trim_end_matches('s');
                        let message = format!(
                            "{noun} \"{}\" is declared here and, differently, in an included file",
                            entry.key
                        );
                        let problem = Finding::new(known.key_span, message)
                            .also(entry.key_span, "this", "and this")
                            .hint("change it in a file laid over both with `-f`, or rename it");
                        self.report.push(problem);
                    }
                    None => merged.set(entry.clone()),
                }
            }
            let place = own.unwrap_or_else(|| YamlEntry { key_span: span, ..theirs.clone() });
            whole = with(&whole, &place, Value::Mapping(merged));
        }
        whole
    }

    fn refuse_remote(&mut self, key: &str, path: &read::Text) {
        let message = format!("`{key}` reads local files only, and {} is none", path.text);
        let problem = Finding::new(path.span, message);
        self.report.push(problem.hint("fetch it first, and name the copy by its path"));
    }
}

/// What a file declares of a kind.
fn declarations<'n>(root: &'n YamlNode, kind: &str) -> Option<(&'n YamlEntry, &'n Mapping)> {
    let entry = root.as_mapping()?.get(kind)?;
    Some((entry, entry.node.as_mapping()?))
}

/// The tree with another value at a key of its top.
fn with(root: &Rc<YamlNode>, entry: &YamlEntry, value: Value) -> Rc<YamlNode> {
    let Some(top) = root.as_mapping() else { return Rc::clone(root) };
    let mut top = top.clone();
    let node = Rc::new(YamlNode::new(entry.node.span, entry.node.tag, value));
    top.set(YamlEntry { node, ..entry.clone() });
    Rc::new(YamlNode::new(root.span, root.tag, Value::Mapping(top)))
}
