//! `plimsoll secret` and `plimsoll config`: what the cell keeps by name, for compose files to refer to with `external: true`.
//! Content comes from a file or standard input, never from the command line, which others can read.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use plimsoll_api::client::Client;
use plimsoll_api::view::{CellFile, ConfigFile, NewContent, NewFile, RotatedFile};
use plimsoll_model::Timestamp;
use plimsoll_model::ceilings::MAX_FILE_BYTES;
use plimsoll_model::cell_files::CellFileKind;

use crate::age::age;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, data, note, print};
use crate::table::Table;
use crate::wait::now;

const SECRET_EXAMPLES: &str = "\
Examples:
  plimsoll secret create db-password password.txt
  pass show db | plimsoll secret create db-password
  plimsoll secret rotate db-password new.txt     rolls the services that use it
  plimsoll secret rm db-password

In a compose file: `secrets: {db-password: {external: true}}`.";

const CONFIG_EXAMPLES: &str = "\
Examples:
  plimsoll config create site nginx.conf
  plimsoll config rotate site nginx.conf         rolls the services that use it
  plimsoll config inspect site                   prints its content

In a compose file: `configs: {site: {external: true}}`.";

/// Manage the secrets of the cell.
#[derive(Debug, clap::Args)]
#[command(after_help = SECRET_EXAMPLES)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    pub(crate) what: FileCommand,
}

/// Manage the configs of the cell.
#[derive(Debug, clap::Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: FileCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum FileCommand {
    /// Create one from a file or standard input
    Create(ContentArgs),
    /// List them, with the services that use each
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one; never the content of a secret
    Inspect(InspectArgs),
    /// Replace its content, and roll the services that use it
    Rotate(ContentArgs),
    /// Remove one that no service uses
    Rm(NameArgs),
}

impl FileCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::Create(args) | Self::Rotate(args) => &mut args.host,
            Self::List(args) => &mut args.host,
            Self::Inspect(args) => &mut args.host,
            Self::Rm(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ContentArgs {
    /// Its name
    name: String,
    /// File with its content, byte for byte; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// Its name
    name: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(kind: CellFileKind, what: &FileCommand) -> Result<(), CliError> {
    match what {
        FileCommand::Create(args) => {
            let (client, content) = (args.host.client()?, content(&args.file)?);
            live::block_on(create(&client, kind, args, content))
        }
        FileCommand::Rotate(args) => {
            let (client, content) = (args.host.client()?, content(&args.file)?);
            live::block_on(rotate(&client, kind, args, content))
        }
        FileCommand::List(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let files = match kind {
                    CellFileKind::Secret => client.secrets().await?,
                    CellFileKind::Config => client.configs().await?,
                };
                print(args.output, &files, |files| table(kind, files, now()))
            })
        }
        FileCommand::Inspect(args) => {
            let client = args.host.client()?;
            live::block_on(inspect(&client, kind, args))
        }
        FileCommand::Rm(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let gone = client.remove_file(kind, &args.name).await?;
                note(&format!("{kind} {} removed", gone.name));
                Ok(())
            })
        }
    }
}

async fn create(
    client: &Client,
    kind: CellFileKind,
    args: &ContentArgs,
    content: Vec<u8>,
) -> Result<(), CliError> {
    let asked = NewFile { name: args.name.clone(), content };
    let made = client.create_file(kind, &asked).await?;
    print(args.output, &made, |made| {
        format!("{kind} {} created: {} bytes, version {}\n", made.name, made.bytes, made.version)
    })
}

async fn rotate(
    client: &Client,
    kind: CellFileKind,
    args: &ContentArgs,
    content: Vec<u8>,
) -> Result<(), CliError> {
    let rotated = client.rotate_file(kind, &args.name, &NewContent { content }).await?;
    print(args.output, &rotated, |rotated| told(kind, rotated))
}

fn told(kind: CellFileKind, rotated: &RotatedFile) -> String {
    let RotatedFile { name, version, is_changed, services, .. } = rotated;
    if !is_changed {
        return format!("{kind} {name} has this content already: version {version}\n");
    }
    let rolled = match services.as_slice() {
        [] => "no service uses it".to_owned(),
        services => format!("rolling {}", services.join(", ")),
    };
    format!("{kind} {name} rotated to version {version}; {rolled}\n")
}

async fn inspect(client: &Client, kind: CellFileKind, args: &InspectArgs) -> Result<(), CliError> {
    match kind {
        CellFileKind::Secret => {
            let file = client.secret(&args.name).await?;
            print(args.output, &file, |file| described(file, now()))
        }
        CellFileKind::Config => {
            let config = client.config(&args.name).await?;
            if args.output != Format::Table {
                return print(args.output, &config, |_| String::new());
            }
            let ConfigFile { file, content } = config;
            note(&described(&file, now()));
            data(&String::from_utf8_lossy(&content))
        }
    }
}

fn described(file: &CellFile, now: Timestamp) -> String {
    let services = match file.services.as_slice() {
        [] => "none".to_owned(),
        services => services.join(", "),
    };
    format!(
        "name      {}\nversion   {}\nbytes     {}\ncreated   {} ago\nrotated   {} ago\nservices  {services}\n",
        file.name,
        file.version,
        file.bytes,
        age(file.created_at, now),
        age(file.rotated_at, now),
    )
}

fn table(kind: CellFileKind, files: &[CellFile], now: Timestamp) -> String {
    if files.is_empty() {
        return format!(
            "The cell keeps no {kind}s. Make one with: plimsoll {kind} create NAME FILE\n"
        );
    }
    let mut table = Table::new(["NAME", ">VERSION", ">BYTES", ">ROTATED", "SERVICES"]);
    for file in files {
        let services = match file.services.as_slice() {
            [] => "-".to_owned(),
            services => services.join(","),
        };
        let (version, bytes) = (file.version.to_string(), file.bytes.to_string());
        table.row([file.name.clone(), version, bytes, age(file.rotated_at, now), services]);
    }
    table.within(None)
}

/// All of it, and no more than can be kept.
fn content(file: &Path) -> Result<Vec<u8>, CliError> {
    let shown = if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let failed = |error: std::io::Error| CliError::refused(format!("cannot read {shown}: {error}"));
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    if file == Path::new("-") {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            note("reading from the terminal; end with Ctrl-D");
        }
        stdin.lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    match bytes.len() {
        0 => Err(CliError::refused(format!("{shown} is empty"))
            .hint("name a file, or pipe its content in")),
        1..=MAX_FILE_BYTES => Ok(bytes),
        _ => Err(CliError::refused(format!("{shown} has more than {MAX_FILE_BYTES} bytes"))
            .hint("mount large files from a volume")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::Time;

    use super::*;

    #[test]
    fn a_list_says_who_uses_each_and_a_rotation_whom_it_rolls() {
        let file = |name: &str, services: &[&str]| CellFile {
            name: name.to_owned(),
            version: 2,
            bytes: 20,
            created_at: Time(Timestamp(0)),
            rotated_at: Time(Timestamp(60_000)),
            services: services.iter().map(|it| (*it).to_owned()).collect(),
        };
        let files = [file("db", &["blog/web", "shop/web"]), file("spare", &[])];
        let text = table(CellFileKind::Secret, &files, Timestamp(180_000));
        expect![[r#"
            [2mNAME   VERSION  BYTES  ROTATED  SERVICES[0m
            db           2     20       2m  blog/web,shop/web
            spare        2     20       2m  -
        "#]]
        .assert_eq(&text);
        expect![[r#"
            name      db
            version   2
            bytes     20
            created   3m ago
            rotated   2m ago
            services  blog/web, shop/web
        "#]]
        .assert_eq(&described(&files[0], Timestamp(180_000)));
        let rotated = |services: &[&str], is_changed| RotatedFile {
            name: "db".to_owned(),
            version: 3,
            is_changed,
            services: services.iter().map(|it| (*it).to_owned()).collect(),
            index: 7,
        };
        for (case, said) in [
            (
                rotated(&["blog/web", "shop/web"], true),
                "secret db rotated to version 3; rolling blog/web, shop/web\n",
            ),
            (rotated(&[], true), "secret db rotated to version 3; no service uses it\n"),
            (rotated(&[], false), "secret db has this content already: version 3\n"),
        ] {
            assert_eq!(told(CellFileKind::Secret, &case), said);
        }
    }
}
