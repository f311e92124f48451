//! Security options. A seccomp profile is named by its file, but the engine wants its text.

use std::fs;

use plimsoll_model::ContainerSpec;

use super::engine_error::EngineError;

pub(super) fn options(spec: &ContainerSpec) -> Result<Vec<String>, EngineError> {
    spec.security_opt.iter().map(|option| with_profile(option)).collect()
}

fn with_profile(option: &str) -> Result<String, EngineError> {
    let Some(profile) =
        option.strip_prefix("seccomp").and_then(|rest| rest.strip_prefix(['=', ':']))
    else {
        return Ok(option.to_owned());
    };
    if matches!(profile, "unconfined" | "builtin") || profile.starts_with('{') {
        return Ok(format!("seccomp={profile}"));
    }
    let text = fs::read_to_string(profile)
        .map_err(|source| EngineError::Profile { path: profile.to_owned(), source })?;
    Ok(format!("seccomp={text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_and_anything_else_passed_on() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("profile.json");
        fs::write(&path, "{\"defaultAction\":1}").unwrap();
        for (option, expected) in [
            ("no-new-privileges:true".to_owned(), "no-new-privileges:true"),
            ("seccomp:unconfined".to_owned(), "seccomp=unconfined"),
            (format!("seccomp={}", path.display()), "seccomp={\"defaultAction\":1}"),
        ] {
            assert_eq!(with_profile(&option).unwrap(), expected);
        }
        let error = with_profile("seccomp=/nowhere.json").unwrap_err().to_string();
        assert_eq!(error, "cannot read the security profile /nowhere.json");
    }
}
