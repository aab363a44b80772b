use super::*;

fn workflow() -> Announcement {
    Announcement {
        name: "Order flow".to_owned(),
        description: "Takes orders.".to_owned(),
        version: "2.1".to_owned(),
        kind: AgentKind::Workflow,
        input_schema: Some(json!({"type": "object"})),
        visualisation: Some(Visualisation::Mermaid("graph TD".to_owned())),
        ..Announcement::default()
    }
}

#[test]
fn what_is_announced_is_found_again() {
    let sent = workflow().card("prod");
    let card: AgentCard = serde_json::from_str(&serde_json::to_string(&sent).unwrap()).unwrap();
    assert_eq!(card.validate(), Ok(()));
    assert_eq!(kind(&card), AgentKind::Workflow);
    assert_eq!(input_schema(&card), Some(&json!({"type": "object"})));
    assert_eq!(output_schema(&card), None);
    assert_eq!(visualisation(&card), Some(Visualisation::Mermaid("graph TD".to_owned())));
    assert_eq!(delivery(&card), Delivery::Queue);
    let interface = &card.supported_interfaces[0];
    assert_eq!(
        (interface.url.as_str(), interface.protocol_version.as_str()),
        ("nats:///prod/__xj5zgizlsebtgy33x", "1.0")
    );
}

#[test]
fn a_plain_agent_says_little() {
    let agent =
        Announcement { name: "echo".to_owned(), delivery: Delivery::Direct, ..Announcement::default() };
    let card = agent.card("prod");
    assert_eq!(kind(&card), AgentKind::Agent);
    assert_eq!(delivery(&card), Delivery::Direct);
    assert_eq!(visualisation(&card), None);
    assert_eq!(card.capabilities.extensions.as_ref().map(Vec::len), Some(1));
    assert_eq!(card.skills[0].id, "echo");
}

#[test]
fn cards_of_other_makes_are_read() {
    let text = include_str!("../../tests/fixtures/card_0.3.json");
    let card: AgentCard = serde_json::from_str(text).unwrap();
    assert_eq!(kind(&card), AgentKind::Workflow);
    assert_eq!(output_schema(&card).map(|schema| &schema["type"]), Some(&json!("object")));
    assert!(matches!(visualisation(&card), Some(Visualisation::Config(_))));
}

#[test]
fn text_is_an_input_where_it_fills_all_that_is_required() {
    let check = |schema: Option<Value>, expected: bool| {
        let agent =
            Announcement { name: "a".to_owned(), input_schema: schema.clone(), ..Announcement::default() };
        assert_eq!(takes_text(&agent.card("prod")), expected, "{schema:?}");
    };
    let two = json!({"text": {"type": "string"}, "n": {"type": "integer"}});
    check(None, true);
    check(Some(json!({"type": "string"})), true);
    check(Some(json!({"type": "object"})), true);
    check(Some(json!({"type": "object", "required": ["amount"]})), false);
    check(Some(json!({"properties": {"text": {"type": "string"}}})), true);
    check(Some(json!({"properties": {"n": {"type": "integer"}}})), false);
    check(Some(json!({"properties": two, "required": ["text"]})), true);
    check(Some(json!({"properties": two, "required": ["n"]})), false);
    check(Some(json!({"properties": two, "required": ["n", "text"]})), false);
}
