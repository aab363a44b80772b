//! Compose and Kubernetes files: held to their published schemas, and to what schemas cannot say.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::commands::containers;
use super::{all, deploy, root, yaml};

fn schema(name: &str) -> Validator {
    let path = root().join("crates/sinew/tests/fixtures/schemas").join(name);
    let schema: Value = serde_json::from_str(&super::read(&path)).unwrap();
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn fits(schema: &Validator, place: &str, document: &Value) {
    let complaints: Vec<String> =
        schema.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(complaints.is_empty(), "{place}: {}", complaints.join("\n"));
}

/// Every manifest with the file it stands in.
fn manifests() -> Vec<(String, Value)> {
    let files = all("kubernetes", "yaml").into_iter().filter(|file| !file.ends_with("kustomization.yaml"));
    let found: Vec<_> = files
        .flat_map(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            yaml(&file).into_iter().map(move |document| (name.clone(), document))
        })
        .collect();
    assert!(found.len() >= 15, "only {} manifests", found.len());
    found
}

fn of<'a>(manifests: &'a [(String, Value)], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    manifests.iter().map(|(_, document)| document).filter(move |document| document["kind"] == kind)
}

#[test]
fn compose_fits_its_schema_and_names_what_is_there() {
    let schema = schema("compose-spec.json");
    let mut compose = yaml(&deploy("compose/compose.yaml")).remove(0);
    fits(&schema, "compose.yaml", &compose);
    let services = compose["services"].as_object().unwrap().clone();
    for (name, service) in &services {
        for needed in service["depends_on"].as_object().into_iter().flat_map(|needed| needed.keys()) {
            assert!(services.contains_key(needed), "{name} needs {needed}, which is not there");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            // A folder of this repository, perhaps as the default of a variable.
            let volume = volume.as_str().unwrap();
            let from = match volume.strip_prefix("${") {
                Some(rest) => rest.split_once(":-").unwrap().1.split('}').next().unwrap(),
                None => volume.split(':').next().unwrap(),
            };
            let there = deploy("compose").join(from).exists() || compose["volumes"].get(from).is_some();
            assert!(there, "{name} mounts {from}, which is not there");
        }
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name} is open to everybody: {port}");
        }
    }
    assert_eq!(services["executor"]["deploy"]["replicas"], 2);
    compose["services"]["nats"]["imagge"] = json!("nats");
    assert!(!schema.is_valid(&compose), "a misspelt key must be noticed");
}

#[test]
fn kubernetes_files_fit_their_schemas() {
    let schema = schema("kubernetes-1.37.json");
    for (file, document) in manifests() {
        fits(&schema, &format!("{file} {} {}", document["kind"], document["metadata"]["name"]), &document);
    }
    let wrong = [
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "x" }, "spec": { "port": [] } }),
        json!({ "apiVersion": "apps/v2", "kind": "Deployment", "metadata": { "name": "x" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" }, "spec": { "replicas": "two" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x" } }),
    ];
    for document in wrong {
        assert!(!schema.is_valid(&document), "{document} must not fit");
    }
}

#[test]
fn kustomize_finds_every_file_once() {
    let kustomization = yaml(&deploy("kubernetes/kustomization.yaml")).remove(0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let named: BTreeSet<String> = kustomization["resources"].as_array().unwrap().iter().map(text).collect();
    let there: BTreeSet<String> = manifests().into_iter().map(|(file, _)| file).collect();
    assert_eq!(named, there);
    let mut made = BTreeSet::new();
    for map in kustomization["configMapGenerator"].as_array().unwrap() {
        made.insert(text(&map["name"]));
        for file in map["files"].as_array().unwrap() {
            assert!(deploy("kubernetes").join(file.as_str().unwrap()).is_file(), "{file} is not there");
        }
    }
    for (file, document) in manifests() {
        let volumes = document["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
        for name in volumes.filter_map(|volume| volume["configMap"]["name"].as_str()) {
            assert!(made.contains(name), "{file} mounts the ConfigMap {name}, which nobody makes");
        }
    }
}

#[test]
fn what_selects_pods_finds_some() {
    let manifests = manifests();
    let workloads: Vec<&Value> =
        ["Deployment", "StatefulSet", "Job"].into_iter().flat_map(|kind| of(&manifests, kind)).collect();
    let labels = |workload: &&Value| workload["spec"]["template"]["metadata"]["labels"].clone();
    let finds = |wanted: &Value| {
        let wanted = wanted.as_object().unwrap();
        workloads.iter().map(labels).any(|labels| wanted.iter().all(|(key, value)| labels[key] == *value))
    };
    for workload in workloads.iter().filter(|workload| workload["kind"] != "Job") {
        let wanted = workload["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let own = labels(workload);
        assert!(wanted.iter().all(|(key, value)| own[key] == *value), "{}", workload["metadata"]["name"]);
    }
    for document in of(&manifests, "PodDisruptionBudget").chain(of(&manifests, "NetworkPolicy")) {
        let selector = document["spec"].get("podSelector").unwrap_or(&document["spec"]["selector"]);
        if let Some(wanted) = selector.get("matchLabels") {
            assert!(finds(wanted), "{} selects nothing: {wanted}", document["metadata"]["name"]);
        }
        for wanted in selector["matchExpressions"].as_array().into_iter().flatten() {
            for value in wanted["values"].as_array().unwrap() {
                let wanted = json!({ wanted["key"].as_str().unwrap(): value });
                assert!(finds(&wanted), "{} selects nothing: {wanted}", document["metadata"]["name"]);
            }
        }
    }
    for service in of(&manifests, "Service") {
        assert!(finds(&service["spec"]["selector"]), "{}", service["metadata"]["name"]);
    }
    for scaler in of(&manifests, "HorizontalPodAutoscaler") {
        let target = &scaler["spec"]["scaleTargetRef"];
        let scaled = of(&manifests, "Deployment").find(|found| found["metadata"]["name"] == target["name"]);
        let scaled = scaled.unwrap_or_else(|| panic!("{target} is not there"));
        assert!(scaled["spec"].get("replicas").is_none(), "the number of {target} is set twice");
        for container in containers(scaled) {
            assert!(
                container["resources"]["requests"]["cpu"].is_string(),
                "nothing to take a share of: {target}"
            );
        }
    }
}

#[test]
fn pods_hold_no_secret_and_need_no_right() {
    for (file, document) in manifests() {
        let pod = &document["spec"]["template"]["spec"];
        for container in containers(&document) {
            let name = format!("{file}: {}", container["name"]);
            let locked = &container["securityContext"];
            assert_eq!(locked["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(locked["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(locked["capabilities"]["drop"], json!(["ALL"]), "{name}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{name} may take all memory");
            let image = container["image"].as_str().unwrap();
            assert!(
                image == "sinew" || image.rsplit(':').next() != Some("latest") && image.contains(':'),
                "{name}"
            );
            for variable in container["env"].as_array().into_iter().flatten() {
                let secret = ["PASSWORD", "KEY", "TOKEN", "SEED"]
                    .iter()
                    .any(|word| variable["name"].as_str().unwrap().contains(word));
                assert!(!secret || variable["valueFrom"]["secretKeyRef"].is_object(), "{name}: {variable}");
            }
            let ports: Vec<&Value> =
                container["ports"].as_array().into_iter().flatten().map(|port| &port["name"]).collect();
            for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
                if let Some(probe) = container.get(probe) {
                    assert!(ports.contains(&&probe["httpGet"]["port"]), "{name}: {probe}");
                }
            }
        }
    }
}
