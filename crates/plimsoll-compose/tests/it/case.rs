//! A compose file with what surrounds it, for tests to read aloud.

use std::collections::BTreeMap;
use std::io;

use plimsoll_compose::{ComposeSource, Files, LoadOptions, Loaded, load};
use plimsoll_model::shape::Mistake;
use plimsoll_model::spec::{ContainerSpec, ServiceSpec};

/// Files that exist in a test only.
#[derive(Debug, Default)]
pub(crate) struct Memory(BTreeMap<String, Vec<u8>>);

impl Files for Memory {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

#[derive(Debug)]
pub(crate) struct Case {
    sources: Vec<ComposeSource>,
    options: LoadOptions,
    files: Memory,
}

/// A file called `compose.yaml`.
pub(crate) fn file(text: impl AsRef<[u8]>) -> Case {
    let source = ComposeSource { name: "compose.yaml".to_owned(), text: text.as_ref().to_vec() };
    let options = LoadOptions { default_name: "shop".to_owned(), ..LoadOptions::default() };
    Case { sources: vec![source], options, files: Memory::default() }
}

/// A file with the one service `web`, whose image is given; the keys follow, one a line.
pub(crate) fn web(keys: &str) -> Case {
    file(service_web(keys))
}

pub(crate) fn service_web(keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    format!("services:\n  web:\n    image: nginx\n{keys}")
}

impl Case {
    pub(crate) fn over(mut self, text: &str) -> Self {
        let name = format!("over{}.yaml", self.sources.len());
        self.sources.push(ComposeSource { name, text: text.as_bytes().to_vec() });
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.options.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn with(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.0.insert(path.to_owned(), content.as_ref().to_vec());
        self
    }

    pub(crate) fn profile(mut self, name: &str) -> Self {
        self.options.profiles.insert(name.to_owned());
        self
    }

    pub(crate) fn called(mut self, name: &str) -> Self {
        self.options.name = Some(name.to_owned());
        self
    }

    pub(crate) fn directory(mut self, path: &str) -> Self {
        path.clone_into(&mut self.options.directory);
        self
    }

    pub(crate) fn try_load(&self) -> Result<Loaded, plimsoll_compose::Diagnostics> {
        load(&self.sources, &self.options, &self.files)
    }

    pub(crate) fn load(&self) -> Loaded {
        let loaded =
            self.try_load().unwrap_or_else(|errors| panic!("the file was refused:\n{errors}"));
        // What a file may say, the API takes; only where a relative path begins a test may leave open.
        for (name, spec) in &loaded.deployment.services {
            let mut mistakes = spec.mistakes();
            mistakes.retain(|mistake| !matches!(mistake, Mistake::RelativeBind { .. }));
            assert!(mistakes.is_empty(), "{name}: {mistakes:?}");
        }
        loaded
    }

    pub(crate) fn service(&self, name: &str) -> ServiceSpec {
        self.load().deployment.services[name].clone()
    }

    pub(crate) fn container(&self) -> ContainerSpec {
        self.service("web").container
    }

    /// What a person reads when the file is refused.
    pub(crate) fn refusal(&self) -> String {
        match self.try_load() {
            Ok(_) => panic!("the file was accepted"),
            Err(errors) => errors.to_string(),
        }
    }

    /// The messages alone.
    pub(crate) fn errors(&self) -> Vec<String> {
        match self.try_load() {
            Ok(_) => Vec::new(),
            Err(errors) => errors.list.into_iter().map(|error| error.message).collect(),
        }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.load().warnings.into_iter().map(|warning| warning.message).collect()
    }
}
