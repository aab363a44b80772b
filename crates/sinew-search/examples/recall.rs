//! Recall on two public sets of tools and requests, as a table.
//!
//! `cargo run --release -p sinew-search --example recall -- FOLDER`. The folder holds, unchanged:
//! - `seal_tools.jsonl`, `seal_test_in_domain.jsonl`, `seal_test_out_domain.jsonl`: `tool.jsonl` and
//!   the tests of `Seal-Tools_Dataset` (github.com/fairyshine/Seal-Tools, Apache-2.0)
//! - `plugin_des.json`, `meta.csv`: `dataset/plugin_des.json` and `dataset/data/all_clean_data.csv`
//!   (github.com/HowieHwong/MetaTool, MIT)

#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use sinew_search::{SearchDocument, SearchIndex, SearchQuery};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: recall FOLDER")?;
    let folder = Path::new(&folder);
    seal(folder)?;
    meta(folder)
}

fn seal(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut index = SearchIndex::default();
    let text = std::fs::read_to_string(folder.join("seal_tools.jsonl"))?;
    let begin = Instant::now();
    for line in text.lines() {
        let tool: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let parameters = tool["parameters"].as_object().into_iter().flatten();
        index.add(&SearchDocument {
            name: text(&tool["api_name"]),
            description: text(&tool["api_description"]),
            tags: vec![text(&tool["field"])],
            parameters: parameters.map(|(name, one)| (name.clone(), text(&one["description"]))).collect(),
            ..SearchDocument::default()
        });
    }
    println!("Seal-Tools: {} tools indexed in {:?}", index.len(), begin.elapsed());
    let mut queries = Vec::new();
    for name in ["seal_test_in_domain.jsonl", "seal_test_out_domain.jsonl"] {
        for line in std::fs::read_to_string(folder.join(name))?.lines() {
            let test: Value = serde_json::from_str(line)?;
            let calls = test["calling"].as_array().into_iter().flatten();
            let right: BTreeSet<String> =
                calls.filter_map(|call| Some(call["api"].as_str()?.to_owned())).collect();
            queries.push((test["query"].as_str().unwrap_or_default().to_owned(), right));
        }
    }
    let typos: Vec<_> = queries.iter().map(|(text, right)| (with_typos(text), right.clone())).collect();
    let single: Vec<_> = queries.iter().filter(|(_, right)| right.len() == 1).cloned().collect();
    report("Seal-Tools", &index, &queries);
    report("Seal-Tools with typos", &index, &typos);
    report("Seal-Tools, one tool", &index, &single);
    Ok(())
}

fn meta(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let tools: BTreeMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("plugin_des.json"))?)?;
    let mut requests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let text = std::fs::read_to_string(folder.join("meta.csv"))?;
    for line in text.lines().skip(1) {
        let Some((query, tool)) = line.rsplit_once(',') else { continue };
        if tools.contains_key(tool) {
            requests.entry(tool.to_owned()).or_default().push(query.trim_matches('"').replace("\"\"", "\""));
        }
    }
    for examples in [0_usize, 3, 5] {
        let mut index = SearchIndex::default();
        let mut rest = Vec::new();
        for (name, description) in &tools {
            // The file is sorted, so examples are taken at equal distances. No example is a query.
            let all = requests.get(name).map_or(&[][..], Vec::as_slice);
            let held: Vec<&String> =
                (0..examples).filter_map(|at| all.get(at * all.len() / examples)).collect();
            let queries = all.iter().filter(|query| !held.contains(query));
            rest.extend(queries.map(|query| (query.clone(), BTreeSet::from([name.clone()]))));
            index.add(&SearchDocument {
                name: name.clone(),
                description: description.clone(),
                examples: held.into_iter().cloned().collect(),
                ..SearchDocument::default()
            });
        }
        report(&format!("MetaTool, {examples} examples"), &index, &rest);
    }
    Ok(())
}

/// Swaps the middle letters of every fourth word that is longer than four letters.
fn with_typos(text: &str) -> String {
    let mut long = 0;
    let words = text.split(' ').map(|word| {
        let mut letters: Vec<char> = word.chars().collect();
        if letters.len() > 4 {
            long += 1;
            if long % 4 == 0 {
                let middle = letters.len() / 2;
                letters.swap(middle - 1, middle);
            }
        }
        letters.into_iter().collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn report(name: &str, index: &SearchIndex, queries: &[(String, BTreeSet<String>)]) {
    let begin = Instant::now();
    let mut sum = 0.0;
    for (text, right) in queries {
        let results = index.search(&SearchQuery { text, limit: 5 }, |_| true);
        let found = results.hits.iter().filter(|hit| right.contains(&hit.name)).count();
        sum += found as f64 / right.len() as f64;
    }
    let count = queries.len() as f64;
    let each = begin.elapsed().div_f64(count);
    println!("{name}: recall@5 {:.3}, {} queries, {each:?} each", sum / count, queries.len());
}
