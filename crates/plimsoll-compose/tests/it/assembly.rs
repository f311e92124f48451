//! `extends` and `include`: one deployment out of several files.

use expect_test::expect;
use plimsoll_model::ids::ServiceName;

use crate::case::file;

#[test]
fn a_service_is_laid_over_the_one_it_extends() {
    let text = "\
services:
  base:
    image: base
    user: nobody
    command: [run, slowly]
    environment: {A: base, B: base}
    ports: ['80:80']
    deploy: {replicas: 2, resources: {limits: {memory: 1g}}}
  web:
    extends: {service: base}
    image: web
    command: [run]
    environment: [B=web, C=web]
    ports: !override ['81:80']
    deploy: {replicas: 3}
  worker:
    extends: base
    user: !reset null
    ports: !reset []
";
    let loaded = file(text).load().deployment;
    let web = &loaded.services["web"].container;
    assert_eq!((web.image.as_str(), web.user.as_deref()), ("web", Some("nobody")));
    assert_eq!(web.command.as_deref(), Some(&["run".to_owned()][..]));
    let environment: Vec<_> = web.environment.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(environment, ["A=base", "B=web", "C=web"]);
    assert_eq!(web.ports.len(), 1);
    assert_eq!(web.limits.memory.0, 1 << 30);
    assert_eq!(loaded.services["web"].placement.mode.replicas(), Some(3));
    let worker = &loaded.services["worker"].container;
    assert_eq!((worker.image.as_str(), worker.user.as_deref()), ("base", None));
    assert!(worker.ports.is_empty());
}

#[test]
fn what_another_file_names_is_beside_that_file() {
    let common = "\
services:
  base:
    image: base:${TAG}
    env_file: [a.env, {path: ../b.env}]
    label_file: l.env
    volumes: ['./data:/data', 'named:/named', '/abs:/abs', {type: bind, source: ../up, target: /up}]
    extends: {file: deeper/more.yaml, service: more}
";
    let more = "services: {more: {user: nobody, volumes: ['../own:/own'], env_file: ../c.env}}\n";
    let container = file(
        "services: {web: {extends: {file: common/base.yaml, service: base}}}\nvolumes: {named: }\n",
    )
    .env("TAG", "1")
    .directory("/srv/shop")
    .with("common/base.yaml", common)
    .with("common/deeper/more.yaml", more)
    .with("common/a.env", "A=a\nC=a\n")
    .with("b.env", "B=b\n")
    .with("common/c.env", "C=c\n")
    .with("common/l.env", "L=l\n")
    .container();
    assert_eq!((container.image.as_str(), container.user.as_deref()), ("base:1", Some("nobody")));
    let pairs: Vec<_> = container.environment.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(pairs, ["A=a", "B=b", "C=a"], "the extending service's files come later");
    assert_eq!(container.labels["L"], "l");
    let sources: Vec<String> =
        container.mounts.iter().map(|it| format!("{:?}", it.source)).collect();
    for path in
        ["/srv/shop/common/data", "/srv/shop/common/own", "/srv/shop/up", "\"/abs\"", "\"named\""]
    {
        assert!(sources.iter().any(|source| source.contains(path)), "{path}: {sources:?}");
    }
}

#[test]
fn circles_of_extends_are_named() {
    let text = "\
services:
  web: {extends: {file: a.yaml, service: a}}
  me: {image: x, extends: me}
";
    let case = file(text)
        .with("a.yaml", "services: {a: {extends: {file: b.yaml, service: b}}}\n")
        .with("b.yaml", "services: {b: {image: x, extends: {file: a.yaml, service: a}}}\n");
    expect![[r#"
        error: `extends` goes in a circle: me (compose.yaml) → me (compose.yaml)
         --> compose.yaml:3:27
          |
        3 |   me: {image: x, extends: me}
          |                           ^^

        error: `extends` goes in a circle: a (a.yaml) → b (b.yaml) → a (a.yaml)
         --> a.yaml:1:25
          |
        1 | services: {a: {extends: {file: b.yaml, service: b}}}
          |                         ^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#]]
    .assert_eq(&case.refusal());
}

#[test]
fn what_is_extended_has_to_be_there() {
    let text = "\
services:
  a: {image: x, extends: bsae}
  b: {image: x, extends: {file: gone.yaml, service: b}}
  c: {image: x, extends: {file: common.yaml, service: bass}}
  d: {image: x, extends: {file: common.yaml}}
  e: {image: x, extends: {file: 'https://example.org/compose.yaml', service: e}}
  f: {image: x, extends: {servce: a}}
  base: {image: x}
";
    expect![[r#"
        error: service "a" extends "bsae", and compose.yaml has no such service
         --> compose.yaml:2:26
          |
        2 |   a: {image: x, extends: bsae}
          |                          ^^^^
        hint: did you mean `base`?

        error: cannot read gone.yaml: entity not found
         --> compose.yaml:3:33
          |
        3 |   b: {image: x, extends: {file: gone.yaml, service: b}}
          |                                 ^^^^^^^^^
        hint: paths are relative to the file that names them

        error: service "c" extends "bass", and common.yaml has no such service
         --> compose.yaml:4:55
          |
        4 |   c: {image: x, extends: {file: common.yaml, service: bass}}
          |                                                       ^^^^
        hint: did you mean `base`?

        error: `extends` needs `service`
         --> compose.yaml:5:17
          |
        5 |   d: {image: x, extends: {file: common.yaml}}
          |                 ^^^^^^^

        error: `extends` reads local files only, and https://example.org/compose.yaml is none
         --> compose.yaml:6:33
          |
        6 |   e: {image: x, extends: {file: 'https://example.org/compose.yaml', service: e}}
          |                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: fetch it first, and name the copy by its path

        error: `extends` needs `service`
         --> compose.yaml:7:17
          |
        7 |   f: {image: x, extends: {servce: a}}
          |                 ^^^^^^^

        error: unknown key `servce` in extends
         --> compose.yaml:7:27
          |
        7 |   f: {image: x, extends: {servce: a}}
          |                           ^^^^^^
        hint: did you mean `service`?
    "#]]
    .assert_eq(&file(text).with("common.yaml", "services: {base: {image: x}}\n").refusal());
}

#[test]
fn an_included_project_brings_what_it_declares() {
    let text = "\
include:
  - db/compose.yaml
  - path: [mail/compose.yaml, mail/over.yaml]
    project_directory: shared
    env_file: mail/mail.env
services:
  web: {image: web, depends_on: [db], networks: [back]}
networks: {back: }
";
    let db = "\
services: {db: {image: 'postgres:${VERSION}', env_file: db.env, volumes: ['data:/data'], networks: [back]}}
volumes: {data: }
networks: {back: }
";
    let mail = "services: {mail: {image: 'mail:${VERSION}', env_file: m.env, secrets: [key]}}\nsecrets: {key: {file: key.txt}}\n";
    let loaded = file(text)
        .env("OUTER", "1")
        .with("db/compose.yaml", db)
        .with("db/.env", "VERSION=16\nOUTER=2\n")
        .with("db/db.env", "A=1\n")
        .with("mail/compose.yaml", mail)
        .with("mail/over.yaml", "services: {mail: {user: '${OUTER}'}}\n")
        .with("mail/mail.env", "VERSION=2\n")
        .with("shared/m.env", "M=1\n")
        .with("shared/key.txt", "secret")
        .load()
        .deployment;
    assert_eq!(
        loaded.services.keys().map(ServiceName::as_str).collect::<Vec<_>>(),
        ["db", "mail", "web"]
    );
    let [db, mail] = ["db", "mail"].map(|name| &loaded.services[name].container);
    assert_eq!((db.image.as_str(), db.environment["A"].as_str()), ("postgres:16", "1"));
    assert_eq!((mail.image.as_str(), mail.environment["M"].as_str()), ("mail:2", "1"));
    assert_eq!(mail.user.as_deref(), Some("1"), "the including project's variables win");
    assert_eq!(mail.secrets.len(), 1);
}

#[test]
fn what_two_files_declare_otherwise_is_shown_in_both() {
    let text =
        "include: [b.yaml]\nservices: {web: {image: nginx}}\nnetworks: {n: {internal: true}}\n";
    let case = file(text)
        .with("b.yaml", "services: {web: {image: other}}\nnetworks: {n: {internal: true}}\n");
    expect![[r#"
        error: service "web" is declared here and, differently, in an included file
         --> compose.yaml:2:12
          |
        2 | services: {web: {image: nginx}}
          |            ^^^ this
          |
         ::: b.yaml:1:12
          |
        1 | services: {web: {image: other}}
          |            --- and this
        hint: change it in a file laid over both with `-f`, or rename it
    "#]]
    .assert_eq(&case.refusal());
    let over = "services: {web: {user: nobody}}\n";
    let included =
        file("include: [b.yaml]\n").with("b.yaml", "services: {web: {image: x}}\n").over(over);
    assert_eq!(included.container().user.as_deref(), Some("nobody"), "a later file may change it");
}

#[test]
fn circles_of_include_and_addresses_are_refused() {
    let case = file("include: [a.yaml]\nservices: {web: {image: x}}\n")
        .with("a.yaml", "include: [sub/b.yaml]\n")
        .with("sub/b.yaml", "include: [../a.yaml]\n");
    expect![[r#"
        error: `include` goes in a circle: compose.yaml → a.yaml → sub/b.yaml → a.yaml
         --> sub/b.yaml:1:11
          |
        1 | include: [../a.yaml]
          |           ^^^^^^^^^
    "#]]
    .assert_eq(&case.refusal());
    for address in
        ["oci://example.org/shop:1", "git@example.org:shop.git", "https://example.org/shop.git"]
    {
        let case = file(format!("include: ['{address}']\nservices: {{web: {{image: x}}}}\n"));
        assert_eq!(
            case.errors(),
            [format!("`include` reads local files only, and {address} is none")]
        );
    }
}

/// Whoever writes a compose file for a build to validate must not read the machine of the build by it.
#[test]
fn lines_of_files_outside_the_project_are_not_shown() {
    let secret = "root:$6$salt$hash:19000:0:99999:7:::\n\t'daemon [\n";
    for text in [
        "services: {web: {image: x, extends: {file: /etc/shadow, service: a}}}\n",
        "include: [/etc/shadow]\nservices: {web: {image: x}}\n",
        "services: {web: {image: x, env_file: /etc/shadow}}\n",
        "services: {web: {image: x, env_file: [../../etc/shadow]}}\n",
    ] {
        let case = file(text).with("/etc/shadow", secret).with("../../etc/shadow", secret);
        let refusal = case.refusal();
        assert!(!refusal.contains("salt") && !refusal.contains("daemon"), "{refusal}");
        assert!(refusal.contains("etc/shadow:"), "{refusal}");
    }
    let inside =
        file("include: [b.yaml]\nservices: {web: {image: x}}\n").with("b.yaml", "services: [\n");
    assert!(inside.refusal().contains("1 | services: ["), "{}", inside.refusal());
}

#[test]
fn a_project_reads_a_bounded_number_of_files() {
    let paths: Vec<String> = (0..600).map(|n| format!("f{n}.yaml")).collect();
    let mut case =
        file(format!("include: [{}]\nservices: {{web: {{image: x}}}}\n", paths.join(", ")));
    for path in &paths {
        case = case.with(path, "x-nothing: 1\n");
    }
    assert_eq!(case.errors(), ["the project reads more than 500 files"]);
}
