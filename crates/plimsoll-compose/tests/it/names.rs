//! What the deployment is called.

use crate::case::file;

fn name(text: &str) -> String {
    file(text).load().deployment.name.to_string()
}

#[test]
fn the_command_line_wins_over_the_environment_over_the_file_over_the_directory() {
    let bare = "services: {web: {image: x}}";
    let named = format!("name: file\n{bare}");
    let extended = format!("x-plimsoll: {{name: extension}}\n{named}");
    assert_eq!(name(bare), "shop");
    assert_eq!(name(&named), "file");
    assert_eq!(name(&extended), "extension");
    let shell = file(&extended).env("COMPOSE_PROJECT_NAME", "shell");
    assert_eq!(shell.load().deployment.name.as_str(), "shell");
    assert_eq!(shell.called("line").load().deployment.name.as_str(), "line");
}

#[test]
fn a_name_that_cannot_be_is_refused() {
    let text = "name: My Shop\nservices: {web: {image: x}}";
    assert!(file(text).errors()[0].starts_with("deployment name \"My Shop\" has 'M'"));
    let errors = file("services: {web: {image: x}}").called("Shop").errors();
    assert!(errors[0].ends_with("starting with a letter or digit (from -p)"), "{errors:?}");
}

#[test]
fn a_service_name_that_cannot_be_is_refused() {
    let errors = file("services: {'my web': {image: x}}").errors();
    assert!(errors[0].starts_with("service name \"my web\" has ' '"), "{errors:?}");
}
