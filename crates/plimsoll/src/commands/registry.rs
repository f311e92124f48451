//! `plimsoll registry`: credentials for private registries, which the cell keeps and hands to the nodes that pull. A password
//! comes from standard input, never from the command line, which others can read.

use std::io::{IsTerminal, Read};

use plimsoll_api::view::{NewRegistryLogin, RegistryLogin};
use plimsoll_model::Timestamp;
use plimsoll_model::registries::{MAX_CREDENTIAL, RegistryHost};

use crate::age::age;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, note, print};
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll registry login registry.example.org -u ci --password-stdin < password.txt
  plimsoll registry list
  plimsoll registry logout registry.example.org

Logging in again replaces the credentials. Docker Hub is docker.io. All of this needs role admin.";

/// Manage the cell's credentials for private registries.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: RegistryCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RegistryCommand {
    /// Give the cell credentials for a registry
    Login(LoginArgs),
    /// List the registries that the cell has credentials for
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Have the cell forget its credentials for a registry
    Logout(LogoutArgs),
}

impl RegistryCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::Login(args) => &mut args.host,
            Self::List(args) => &mut args.host,
            Self::Logout(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Host of the registry, with its port where it is not the usual one
    #[arg(value_name = "HOST")]
    registry: String,
    /// User name
    #[arg(short, long, value_name = "USER")]
    username: String,
    /// Read the password or token from standard input
    #[arg(long, required = true)]
    password_stdin: bool,
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
pub(crate) struct LogoutArgs {
    /// Host of the registry
    #[arg(value_name = "HOST")]
    registry: String,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(what: &RegistryCommand) -> Result<(), CliError> {
    match what {
        RegistryCommand::Login(args) => {
            // Before the password is read: a mistyped host is worth no secret.
            let wrong = |error| CliError::refused(format!("{error}"));
            let registry = RegistryHost::parse(&args.registry).map_err(wrong)?.to_string();
            let client = args.host.client()?;
            let asked =
                NewRegistryLogin { registry, user: args.username.clone(), password: password()? };
            live::block_on(async {
                let made = client.login_registry(&asked).await?;
                print(args.output, &made, |made| {
                    format!("logged in to {} as {}\n", made.registry, made.user)
                })
            })
        }
        RegistryCommand::List(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let registries = client.registries().await?;
                print(args.output, &registries, |registries| table(registries, now()))
            })
        }
        RegistryCommand::Logout(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let gone = client.logout_registry(&args.registry).await?;
                note(&format!("logged out of {}", gone.registry));
                Ok(())
            })
        }
    }
}

fn table(registries: &[RegistryLogin], now: Timestamp) -> String {
    if registries.is_empty() {
        return "The cell has no credentials for registries. Log in with: plimsoll registry login HOST -u USER \
                --password-stdin\n"
            .to_owned();
    }
    let mut table = Table::new(["REGISTRY", "USER", ">SINCE"]);
    for it in registries {
        table.row([it.registry.clone(), it.user.clone(), age(it.logged_in_at, now)]);
    }
    table.within(None)
}

/// One line, without its end: that is how people pipe it in.
fn password() -> Result<String, CliError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        note("reading the password from the terminal; end with Ctrl-D");
    }
    let mut text = String::new();
    let most = MAX_CREDENTIAL as u64 + 3;
    let failed = |error| CliError::refused(format!("cannot read the password: {error}"));
    stdin.lock().take(most).read_to_string(&mut text).map_err(failed)?;
    let password = text.trim_end_matches(['\r', '\n']);
    match password.len() {
        0 => Err(CliError::refused("the password is empty").hint("pipe it in")),
        1..=MAX_CREDENTIAL => Ok(password.to_owned()),
        _ => Err(CliError::refused(format!("the password has more than {MAX_CREDENTIAL} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::Time;

    use super::*;

    #[test]
    fn a_list_says_where_the_cell_is_logged_in_and_as_whom() {
        let login = |registry: &str, user: &str| RegistryLogin {
            registry: registry.to_owned(),
            user: user.to_owned(),
            logged_in_at: Time(Timestamp(60_000)),
        };
        let all = [login("docker.io", "ci"), login("registry.example.org:5000", "deployer")];
        expect![[r#"
            REGISTRY                   USER      SINCE
            docker.io                  ci           2m
            registry.example.org:5000  deployer     2m
        "#]]
        .assert_eq(&anstream::adapter::strip_str(&table(&all, Timestamp(180_000))).to_string());
        assert!(table(&[], Timestamp(0)).contains("registry login HOST"));
    }
}
