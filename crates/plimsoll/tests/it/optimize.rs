//! `plimsoll optimize` on a described cell: what it prints and what it refuses. What becomes of a plan in a running cell is tested
//! with the API and in the kernel.

use expect_test::expect;
use serde_json::Value;

use crate::run::{directory, plimsoll};

/// Two nodes hold little of what is packed, and both are paid for.
const CASE: &str = "\
cell: crumbs
nodes:
  - {name: ash, cpus: 4, memory: 16gb}
  - {name: birch, cpus: 4, memory: 16gb}
deployments:
  - name: shop
    services:
      web: {placement: binpack, replicas: 1, reserve: {cpus: 1, memory: 1gb}}
      api: {placement: binpack, replicas: 2, reserve: {cpus: 1, memory: 1gb}}
replicas:
  - {service: shop/web, index: 1, node: ash}
  - {service: shop/api, index: 1, node: birch}
  - {service: shop/api, index: 2, node: birch}
";

#[test]
fn a_plan_is_printed_in_order_with_its_reasons_and_what_it_brings() {
    let here = directory("optimize", [("case.yaml", CASE)]);
    let ran = here.run("optimize --input case.yaml --time 5s");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    let text = ran.stdout();
    for part in
        ["shop-web-1", "frees_node", "+3750", "1 move for 3750 points", "nodes in use 2 → 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = here.run("optimize --input case.yaml --time 5s --moves 3 -o json");
    let plan: Value = serde_json::from_str(&json.stdout()).unwrap();
    assert_eq!((plan["gain"].as_i64(), plan["is_whole"].as_bool()), (Some(3_750), Some(true)));
    assert_eq!(
        (plan["moves"][0]["from"].as_str(), plan["moves"][0]["to"].as_str()),
        (Some("ash"), Some("birch"))
    );
}

#[test]
fn what_cannot_be_searched_is_refused_with_the_next_step() {
    let here = directory("optimize_bad", [("case.yaml", CASE)]);
    let said: Vec<String> = ["--moves 0", "--moves 1001", "--time 61s"]
        .map(|args| here.run(&format!("optimize --input case.yaml {args}")).stderr())
        .into();
    expect![[r#"
        error: a plan of 0 moves cannot be asked for
        hint: say a number from 1 to 1000
        error: a plan of 1001 moves cannot be asked for
        hint: say a number from 1 to 1000
        error: a search of 61000 ms cannot be asked for
        hint: say a time up to 60s
    "#]]
    .assert_eq(&said.concat());
    let both = plimsoll("optimize --input case.yaml --apply");
    assert_eq!(both.code(), 1, "what is described is not carried out");
}
