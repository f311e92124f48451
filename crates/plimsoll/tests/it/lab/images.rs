//! Images that are not there, and what runs meanwhile.

use super::compose::web;
use super::harness::{Lab, lab, reason};

#[test]
fn a_tag_that_does_not_exist_costs_nothing_and_a_fixed_one_heals_it() {
    let (Some(lab), Some(registry)) = (Lab::docker(), lab("REGISTRY")) else { return };
    let image = |tag: &str| web(&[&format!("image: {registry}/plimsoll-test:{tag}")]);
    lab.settle("shop", &image("1"));
    let old = lab.only("shop/web");

    lab.apply("shop", &image("absent"));
    let shop = lab.until("shop", "the pull fails", |it| reason(it, "image_pull_failed").is_some());
    let text = reason(&shop, "image_pull_failed").unwrap();
    assert!(text.contains(&format!("{registry}/plimsoll-test:absent")), "{text}");
    // The registry's own words, or those of an engine that keeps images in containerd.
    let says_why = |text: &str| text.contains("manifest unknown") || text.contains(": not found");
    assert!(says_why(&text), "{text}");
    let said = lab.run_reading("apply -f - -p shop --timeout 30s", &image("absent"));
    assert_eq!(said.code, 1, "{said:#?}");
    assert!(said.stderr.contains("image_pull_failed"), "{said:#?}");
    assert!(says_why(&said.stderr), "{said:#?}");
    assert_eq!(
        lab.found(),
        std::slice::from_ref(&old),
        "the old container serves on, and there is no other"
    );

    lab.settle("shop", &image("1"));
    assert_eq!(lab.only("shop/web").id, old.id, "it ran what was asked for all along");
    let fixed = image("1") + "    environment: {COLOUR: green}\n";
    lab.apply("shop", &image("absent"));
    lab.until("shop", "the pull fails", |it| reason(it, "image_pull_failed").is_some());
    lab.settle("shop", &fixed);
    assert_ne!(lab.only("shop/web").id, old.id);
}

#[test]
fn a_tag_that_appears_later_is_pulled_without_being_asked_again() {
    let (Some(lab), Some(registry)) = (Lab::docker(), lab("REGISTRY")) else { return };
    let image = format!("{registry}/plimsoll-test:{}", lab.name);
    let revision = lab.apply("shop", &web(&[&format!("image: {image}")]));
    lab.until("shop", "the pull fails", |it| reason(it, "image_pull_failed").is_some());
    assert_eq!(lab.found(), []);
    lab.engine(&["tag", "plimsoll-test:1", &image]).done();
    lab.engine(&["push", "-q", &image]).done();
    // Only the registry has it now, so that it has to be pulled.
    lab.engine(&["rmi", &image]).done();
    lab.steady_at("shop", revision);
    lab.run("delete shop").done();
    lab.gone("shop");
    lab.engine(&["rmi", &image]);
}

#[test]
fn a_registry_that_does_not_answer_is_said_and_an_image_of_none_is_said_once() {
    let Some(lab) = Lab::docker() else { return };
    // Nothing listens on this port.
    let image = format!("127.0.0.1:1/{}:1", lab.name);
    let compose = web(&[&format!("image: {image}")]);
    let said = lab.run_reading("apply -d -f - -p shop", &compose).done();
    assert!(said.stderr.contains(&format!("{image} is used by its tag")), "{said:#?}");
    assert!(said.stderr.contains("connection refused"), "{said:#?}");
    lab.until("shop", "the pull fails", |it| reason(it, "image_pull_failed").is_some());
    let explained = lab.run("explain shop-web-1").done().stdout;
    assert!(explained.contains("is used by its tag: the registry did not answer"), "{explained}");

    // Some engines name a digest for what they built themselves, and then nobody can tell where it came from.
    let digests = lab.engine(&["image", "inspect", "-f", "{{.RepoDigests}}", "plimsoll-test:1"]);
    if digests.done().stdout.trim() != "[]" {
        return;
    }
    lab.engine(&["tag", "plimsoll-test:1", &image]).done();
    let once = lab.run_reading("apply -f - -p shop", &compose).done();
    assert!(once.stderr.contains("comes from no registry"), "{once:#?}");
    let again = lab.run_reading("apply -f - -p shop", &compose).done();
    assert!(!again.stderr.contains("image_not_pinned"), "{again:#?}");
    lab.engine(&["rmi", "-f", &image]);
}
