//! The workflow editor: underlined findings, trials, and the page of a deployed file.

use serde_json::json;

use super::browser::Browser;
use super::pages::DeskClient;
use super::world::{CHAIN, ConsoleWorld};

/// The text of the editor, in its shadow root.
const CONTENT: &str = "document.querySelector('.editor').shadowRoot.querySelector('.cm-content')";

/// Replaces the text of the editor as a person does: everything is chosen, and another text pasted.
async fn paste(browser: &Browser, text: &str) {
    let script = format!(
        "const content = {CONTENT};
        content.focus();
        content.dispatchEvent(new KeyboardEvent('keydown', {{key: 'a', code: 'KeyA', keyCode: 65, ctrlKey: true, bubbles: true, composed: true, cancelable: true}}));
        const data = new DataTransfer();
        data.setData('text/plain', {});
        content.dispatchEvent(new ClipboardEvent('paste', {{clipboardData: data, bubbles: true, composed: true, cancelable: true}}));",
        json!(text)
    );
    browser.script(&script).await;
}

#[tokio::test]
async fn a_file_is_mended_at_the_desk_deployed_and_started() {
    let Some(browser) = Browser::start().await else { return };
    let world = ConsoleWorld::new().await;
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/desk", world.mesh.base)).await;
    browser.wait_for_text("0 errors").await;
    browser.wait_until("document.documentElement.dataset.editor === 'ready'").await;
    // No file that was loaded is larger than a page may be.
    let largest =
        "return Math.max(...performance.getEntriesByType('resource').map((one) => one.encodedBodySize))";
    let largest = browser.script(largest).await.as_f64().unwrap();
    assert!(largest > 50_000.0 && largest < 256.0 * 1024.0, "{largest}");
    // An error is underlined at its line and column, and listed.
    paste(&browser, &CHAIN.replace("agent_name: shipper", "agent_nam: shipper")).await;
    browser.wait_until("document.querySelector('.findings .is-error .place')").await;
    let marks = "[...document.querySelector('.editor').shadowRoot.querySelectorAll('.cm-lintRange-error')]";
    browser.wait_until(&format!("{marks}.length > 0")).await;
    let place = browser.script("return document.querySelector('.findings .is-error').dataset.from").await;
    let line = format!("return String([...{CONTENT}.children].indexOf({marks}[0].closest('.cm-line')) + 1)");
    assert_eq!(browser.script(&line).await, place);
    browser.save_picture("desk-finding").await;
    // The place of a finding is a click away, and what is typed there is checked as it is typed.
    browser.click(".findings .place").await;
    browser.wait_until(&format!("document.activeElement.shadowRoot?.activeElement === {CONTENT}")).await;
    browser.press(&["y", "/"]).await;
    browser.wait_until("document.querySelector('textarea[name=text]').value.includes('y/')").await;
    world.mend();
    paste(&browser, CHAIN).await;
    browser.wait_for_text("0 errors").await;
    browser.wait_until(&format!("{marks}.length === 0")).await;
    browser.wait_until("document.querySelector('.drawing [data-node=ship]')").await;
    // Cases and a dry run answer on the page, without leaving it.
    browser.script("document.querySelector('form#desk details').open = true").await;
    let cases = "cases:\n  - name: goes out\n    workflow: workflow.yaml\n    input: {value: x}\n    agents:\n      one: {output: {value: checked}}\n      shipper: {output: {value: gone}}\n    expect: {status: success, output: {value: gone}}\n  - name: is wrong\n    workflow: workflow.yaml\n    input: {value: x}\n    agents:\n      one: {output: {value: checked}}\n      shipper: {output: {value: gone}}\n    expect: {output: {value: stays}}\n";
    browser.script(&format!("document.querySelector('textarea[name=cases]').value = {}", json!(cases))).await;
    browser.click("button[value=test]").await;
    browser.wait_for_text("1 passed, 1 failed").await;
    browser.wait_until("document.querySelector('.cases-told .failure')?.textContent.includes('stays')").await;
    browser.script("document.querySelector('[data-part=dry-run] details').open = true").await;
    browser.write("textarea[name=input]", "{\"value\": \"x\"}").await;
    browser.click("button[value=dry]").await;
    browser.wait_for_text("3 tasks").await;
    browser.save_picture("desk-trials").await;
    browser.click("button[value=deploy]").await;
    browser.wait_until("location.pathname === '/console/workflows/workflow'").await;
    browser.click("[data-action][href$='/start']").await;
    browser.write("textarea[name='in.value']", "an order").await;
    browser.click("form.steer button[type=submit]").await;
    browser.wait_until("document.querySelector('h1 .status')?.textContent.includes('succeeded')").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test]
async fn cases_of_a_model_agent_are_run_at_the_desk() {
    let world = ConsoleWorld::new().await;
    let desk = DeskClient::open(&world).await;
    let (_, _, page) = world.page("/console/desk?kind=agent").await;
    for one in [
        "sorter.agent.yaml",
        "sinew agent describe sorter.agent.yaml",
        "sinew test sorter.test.yaml",
        "0 errors",
    ] {
        assert!(page.contains(one), "{one:?} is not in {page}");
    }
    assert!(!page.contains("value=\"deploy\""), "agents are served, not deployed");
    let cases = "agent: a.agent.yaml\ncases:\n  - {name: holds, input: {}, model: [{text: yes}], expect: {turns: 1}}\n";
    let model = |rest: &str| format!("name: a\ndescription: A\nrun: {{model: {{use: [main], {rest}}}}}\n");
    // Models of a file beside it need not be sent: the case brings the answers. No file of the gateway is read for the sender.
    for (text, cases, wanted) in [
        (model("instruction: Say yes."), cases.to_owned(), vec!["1 passed, 0 failed"]),
        (
            model("instruction_file: /etc/passwd"),
            cases.to_owned(),
            vec!["0 passed, 0 failed", "cannot reference other files"],
        ),
        (model("skills: [/etc]"), cases.to_owned(), vec!["cannot reference other files"]),
        (
            model("instruction: Say yes."),
            cases.replace("a.agent.yaml", "/etc/passwd"),
            vec!["is not the uploaded file"],
        ),
        (
            model("instruction: Say yes."),
            cases.replace("turns: 1", "turns: 2"),
            vec!["0 passed, 1 failed", "turns"],
        ),
        (model("instruction: Say yes."), cases.replace("text: yes", "nonsense: 1"), vec!["is-error"]),
        (model("use: [main]"), cases.to_owned(), vec!["is-error"]),
    ] {
        let told = desk
            .send(&[("name", "a.agent.yaml"), ("text", &text), ("work", "test"), ("cases", &cases)])
            .await;
        for one in wanted {
            assert!(told.contains(one), "{one:?} is not in {told}");
        }
        assert!(!told.contains("root:x"), "{told}");
    }

    let Some(browser) = Browser::start().await else { return world.end().await };
    browser.look_as((1280, 800), "light").await;
    browser.open(&format!("{}/console/desk?kind=agent", world.mesh.base)).await;
    browser.wait_until("document.documentElement.dataset.editor === 'ready'").await;
    browser.click("button[value=test]").await;
    browser.wait_for_text("1 passed, 0 failed").await;
    let wrong = "const field = document.querySelector('textarea[name=cases]'); field.value = field.value.replace('expect: {output: {queue: billing}', 'expect: {output: {queue: technical}')";
    browser.script(wrong).await;
    browser.click("button[value=test]").await;
    browser.wait_for_text("0 passed, 1 failed").await;
    browser
        .wait_until("document.querySelector('.cases-told .failure')?.textContent.includes('technical')")
        .await;
    browser.save_picture("desk-agent-cases").await;
    assert_eq!(browser.messages().await, Vec::<String>::new());
    world.end().await;
}

/// A canvas of covalt with a branch by a field.
const CANVAS: &str = r#"{
  "id": "canvas", "name": "canvas", "dialect": "covalt",
  "nodes": [
    {"id": "start", "type": "webhook-trigger", "data": {}},
    {"id": "branch", "type": "conditional", "data": {"field": "body.n", "operator": "greaterThan", "value": 3}},
    {"id": "large", "type": "prompt-template", "data": {"template": "large"}},
    {"id": "small", "type": "prompt-template", "data": {"template": "small"}}
  ],
  "edges": [
    {"id": "e1", "source": "start", "sourceHandle": "output", "target": "branch", "targetHandle": "input", "data": {"channel": "flow"}},
    {"id": "e2", "source": "branch", "sourceHandle": "true", "target": "large", "targetHandle": "input", "data": {"channel": "flow"}},
    {"id": "e3", "source": "branch", "sourceHandle": "false", "target": "small", "targetHandle": "input", "data": {"channel": "flow"}}
  ]
}"#;

#[tokio::test]
async fn trials_sockets_and_deployed_sources_are_shown_without_a_script() {
    let world = ConsoleWorld::new().await;
    let desk = DeskClient::open(&world).await;
    let check = |text: &str, wanted: &[&str]| {
        for one in wanted {
            assert!(text.contains(one), "{one:?} is not in {text}");
        }
    };
    let told = desk.send(&[("name", "canvas.json"), ("text", CANVAS), ("work", "check")]).await;
    check(&told, &["0 errors", "Sockets", "data-shape=\"circle\"", "fill=\"#e5e7eb\"", "conditional"]);
    // The nodes of the graph have them, too.
    check(&told, &["class=\"socket\" fill=\"#e5e7eb\"", "<title>gives true: data</title>"]);
    let told = desk
        .send(&[
            ("name", "flow.yaml"),
            ("text", CHAIN),
            ("work", "dry"),
            ("input", "{\"value\": \"<b>x</b>\"}"),
        ])
        .await;
    check(&told, &["3 tasks", "Would call", "&lt;b&gt;x&lt;/b&gt;", "sinew run flow.yaml -i"]);
    let told = desk.send(&[("name", "flow.yaml"), ("text", CHAIN), ("work", "dry"), ("input", "{}")]).await;
    check(&told, &["SINEW-"]);
    // A case may name no other file than the one that was sent.
    let cases =
        "cases:\n  - {name: elsewhere, workflow: /etc/passwd, input: {}, expect: {status: success}}\n";
    let told = desk.send(&[("name", "flow.yaml"), ("text", CHAIN), ("work", "test"), ("cases", cases)]).await;
    check(&told, &["0 passed, 1 failed", "is not the uploaded file"]);
    let told =
        desk.send(&[("name", "flow.yaml"), ("text", CHAIN), ("work", "test"), ("cases", "cases: 3")]).await;
    check(&told, &["0 passed, 0 failed", "is-error"]);

    // The file of a deployed version stands on its page, with its findings in place, and opens in the editor again.
    let doubtful = CHAIN.replace("\"sent\"", "\"{{nowhere.output.x}}\"");
    world.deploy("doubtful.yaml", &doubtful).await;
    let (_, _, page) = world.page("/console/workflows/doubtful").await;
    check(
        &page,
        &["Source of doubtful.yaml", "<mark class=\"is-warning\"", "nowhere", "An order on its way"],
    );
    // Another comment is the same plan, and another file.
    let again = doubtful.replace("workflow:\n", "# another word\nworkflow:\n");
    let address = format!("{}/api/v1/workflows?name=doubtful.yaml", world.mesh.base);
    assert_eq!(world.mesh.http.post(address).body(again).send().await.unwrap().status(), 200);
    let (_, _, page) = world.page("/console/workflows/doubtful").await;
    check(&page, &["# another word"]);
    let (_, _, desk_page) = world.page("/console/desk?workflow=doubtful").await;
    check(&desk_page, &["value=\"doubtful.yaml\"", "# another word"]);
    world.start("doubtful", "odd", &json!({ "value": "x" })).await;
    world.reaches("odd", "failed").await;
    let (_, _, page) = world.page("/console/executions/odd/source").await;
    check(&page, &["Source of doubtful.yaml", "# another word"]);
    world.end().await;
}

/// Files of the other dialects, each with the name that its workflow gets, and an input.
#[tokio::test]
async fn sources_are_kept_in_every_dialect() {
    let world = ConsoleWorld::new().await;
    let agentflow = json!({
        "id": "talk", "name": "talk",
        "nodes": [
            {"id": "s", "type": "start", "data": {"initialInput": "Hello World"}},
            {"id": "i", "type": "if", "data": {"conditions": [{"operator": "contains", "value": "world"}]}},
            {"id": "e", "type": "end", "data": {}}
        ],
        "connections": [
            {"id": "c1", "source": "s", "target": "i", "sourceHandle": "output", "targetHandle": "input"},
            {"id": "c2", "source": "i", "target": "e", "sourceHandle": "condition-0", "targetHandle": "input"}
        ]
    })
    .to_string();
    let team = json!({
        "id": "team", "name": "team",
        "nodes": [
            {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
            {"id": "f", "name": "f", "type": "FLOW", "subtype": "IF", "configurations": {"condition_expression": "$json.amount > 5"}}
        ],
        "connections": [{"id": "c", "from_node": "t", "to_node": "f", "output_key": "result"}],
        "triggers": ["t"]
    })
    .to_string();
    let sweny = "id: judged\nname: judged\nnodes:\n  a:\n    name: a\n    instruction: look\n  b:\n    name: b\n    instruction: fix\n  c:\n    name: c\n    instruction: leave\nedges:\n  - {from: a, to: b, when: it is broken}\n  - {from: a, to: c, when: it is whole}\nentry: a\n";
    for (file, text) in [
        ("talk.json", agentflow.as_str()),
        ("team.json", &team),
        ("canvas.json", CANVAS),
        ("judged.yaml", sweny),
    ] {
        let address = format!("{}/api/v1/workflows?name={file}", world.mesh.base);
        let answer = world.mesh.http.post(address).body(text.to_owned()).send().await.unwrap();
        let status = answer.status();
        let document: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(status, 201, "{file}: {document}");
        let name = document[0]["name"].as_str().unwrap();
        let (_, _, source) = world.page(&format!("/api/v1/workflows/{name}/source")).await;
        let source: serde_json::Value = serde_json::from_str(&source).unwrap();
        assert_eq!(
            (&source["files"][0]["name"], &source["files"][0]["text"]),
            (&json!(file), &json!(text)),
            "{source}"
        );
    }
    // Values that a condition saw, in the words of each dialect.
    for (workflow, id, input, node, wanted) in [
        (
            "talk",
            "t1",
            json!("Hello World"),
            "i",
            vec!["contains &quot;world&quot;", "<b>true</b>", "Hello World"],
        ),
        (
            "team",
            "t2",
            json!({"amount": 3}),
            "f",
            vec!["$json.amount &gt; 5", "<b>false</b>", "<code>3</code>"],
        ),
        ("canvas", "t3", json!({"n": 7}), "branch", vec!["body.n greaterThan 3"]),
    ] {
        world.start(workflow, id, &input).await;
        world.reaches(id, "succeeded").await;
        let (_, _, page) = world.page(&format!("/console/executions/{id}?node={node}")).await;
        for one in ["<h3>Condition</h3>"].into_iter().chain(wanted) {
            assert!(page.contains(one), "{workflow}: {one:?} is not in {page}");
        }
    }
    world.end().await;
}
