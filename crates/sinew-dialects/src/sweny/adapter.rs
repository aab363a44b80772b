//! Engine callbacks: the work of a node, the evaluation of its answers, the selected edge.

use sinew_protocol::code;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::{Value, json};
use sinew_engine::{
    Activation, ActivationEnd, ActivationId, ActivationOutput, Adapter, AdapterContext, Fact, NativeEvent,
    NodeDecision, OutgoingToken, RecordedReply, RouteDecision, SeenCondition, TaskRequest, out_edges,
};
use sinew_plan::{EdgeIndex, Plan, PlanNode};
use sinew_protocol::Fault;

use super::eval::{self, EvalVerdict, JudgingOutcome};
use super::model::{NodeExtra, NodeRequirements, OnFail, PlanExtra};
use super::result::{self, FAILED, NodeResult, SKIPPED, SUCCESS};
use super::{NAME, inputs, instruct, project, seen, skill, source};

/// Code of an execution with failed nodes.
pub(super) const NODE_FAILED: &str = code::SWENY_NODES_FAILED.as_str();
pub(super) const STEP_BUDGET: &str = code::SWENY_STEP_BUDGET_USED_UP.as_str();
/// Name of the default edge among the choices.
const DEFAULT: &str = "None of the above / default path";

/// The adapter of the dialect.
pub(super) struct SwenyAdapter;

impl Adapter for SwenyAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admit(&self, plan: &Plan, input: Value) -> Result<Value, Fault> {
        let extra = read_plan_extra(plan)?;
        if !extra.missing_config.is_empty() {
            let text = format!("Missing required config:\n{}", extra.missing_config.join("\n"));
            return Err(Fault::invalid(code::SWENY_INPUT_BREAKS_CONTRACT.as_str(), text));
        }
        let input = if input.is_null() { json!({}) } else { input };
        let mut problems = match inputs::check(extra.inputs.as_ref(), &input) {
            Ok(input) => {
                let problems = unreadable(&input);
                if problems.is_empty() {
                    return Ok(input);
                }
                problems
            }
            Err(problems) => problems,
        };
        let lines: Vec<String> = problems.drain(..).map(|(field, text)| format!("{field}: {text}")).collect();
        Err(Fault::invalid(
            code::SWENY_INPUT_BREAKS_CONTRACT.as_str(),
            "the input does not match the workflow's contract",
        )
        .with_details(lines))
    }

    fn conditions(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
        let one = ctx.act(act);
        let judged = one.replies.iter().rfind(|reply| reply.tag == TaskRequest::ROUTE);
        let chosen = judged.and_then(|reply| reply.result.as_ref().ok()).map(|reply| answered(&reply.output));
        let edges = out_edges(ctx, one.node).filter_map(|edge| Some((edge, when(ctx, edge)?))).collect();
        seen::conditions(ctx, act, edges, chosen.as_deref())
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        bind(ctx, act).into()
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        go_on(ctx, act).into()
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        if ctx.act(act).output.is_none() {
            return RouteDecision::End("the run broke off".into());
        }
        if is_dry(ctx) && out_edges(ctx, ctx.act(act).node).any(|edge| when(ctx, edge).is_some()) {
            return end(ctx, act, "dry run");
        }
        let open: Vec<EdgeIndex> =
            out_edges(ctx, ctx.act(act).node).filter(|edge| ctx.edge_open(*edge)).collect();
        let default = open.iter().copied().find(|edge| when(ctx, *edge).is_none());
        if open.iter().all(|edge| when(ctx, *edge).is_none()) {
            return match default {
                Some(edge) => follow(ctx, act, edge, "only path"),
                None => RouteDecision::Tokens(Vec::new()),
            };
        }
        let mut choices: Vec<(EdgeIndex, &str)> =
            open.iter().filter_map(|edge| when(ctx, *edge).map(|when| (*edge, when))).collect();
        choices.extend(default.map(|edge| (edge, DEFAULT)));
        match ctx.act(act).replies.last().filter(|reply| reply.tag == TaskRequest::ROUTE) {
            None => ask_route(ctx, act, &choices),
            Some(reply) => choose(ctx, act, &choices, default, reply),
        }
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        let broken = |one: &&Activation| one.end == Some(ActivationEnd::Failed) && one.output.is_none();
        if let Some(fault) = ctx.state.acts.iter().find(broken).and_then(|one| one.fault.clone()) {
            return Err(fault);
        }
        let is_unjudged = |fault: &&Fault| fault.code == code::CONDITIONS_WITHOUT_JUDGE.as_str();
        if let Some(fault) = ctx.state.acts.iter().filter_map(|one| one.fault.as_ref()).find(is_unjudged) {
            return Err(fault.clone());
        }
        let results = result::results(ctx);
        let failed: Vec<&str> =
            results.iter().filter(|(_, (_, result))| result.status == FAILED).map(|(id, _)| *id).collect();
        if failed.is_empty() {
            return Ok(result::native(ctx));
        }
        let details =
            results.iter().filter(|(_, (_, result))| result.status == FAILED).map(|(id, (_, result))| {
                format!("{id}: {}", result.data.get("error").and_then(Value::as_str).unwrap_or("failed"))
            });
        let text = format!("nodes ended failed: {}", failed.join(", "));
        Err(Fault::failure(NODE_FAILED, text).with_retryable(false).with_details(details))
    }

    fn failed_output(&self, ctx: &AdapterContext<'_>) -> Option<Value> {
        Some(result::native(ctx))
    }

    fn project(&self, ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
        project::project(ctx, fact)
    }

    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        result::native(ctx)
    }
}

/// Cache of the data of plans, by digest: rules and context may be long, and each decision reads
/// them.
static PLAN_EXTRAS: LazyLock<moka::sync::Cache<String, Arc<PlanExtra>>> =
    LazyLock::new(|| moka::sync::Cache::new(256));

/// Returns the dialect's data of the workflow.
fn plan_extra(ctx: &AdapterContext<'_>) -> Result<Arc<PlanExtra>, Fault> {
    if let Some(known) = PLAN_EXTRAS.get(ctx.graph.digest()) {
        return Ok(known);
    }
    let read = Arc::new(read_plan_extra(ctx.plan())?);
    PLAN_EXTRAS.insert(ctx.graph.digest().to_owned(), Arc::clone(&read));
    Ok(read)
}

fn read_plan_extra(plan: &Plan) -> Result<PlanExtra, Fault> {
    PlanExtra::deserialize(&plan.extra).map_err(|error| broken_plan(&error))
}

/// Returns the context of a node's task, unless the plan is not of this dialect.
pub(super) fn node_request(plan: &Plan, node: &PlanNode) -> Option<Value> {
    let extra = NodeExtra::deserialize(&node.extra).ok()?;
    Some(instruct::surroundings(&read_plan_extra(plan).ok()?, &node.id, &extra))
}

fn node_extra(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeExtra, Fault> {
    NodeExtra::deserialize(&ctx.node_of(act).extra).map_err(|error| broken_plan(&error))
}

fn broken_plan(error: &serde_json::Error) -> Fault {
    Fault::invalid(
        code::SWENY_WORKFLOW_WRONG_FORM.as_str(),
        format!("the plan is not of the dialect sweny: {error}"),
    )
}

/// Returns sources of the input that are not inline text: files are not read during an execution.
fn unreadable(input: &Value) -> Vec<inputs::Problem> {
    let of = |key: &'static str| {
        instruct::given(input.get(key)).into_iter().map(move |(n, source)| (key, n, source))
    };
    of("rules")
        .chain(of("context"))
        .filter(|(_, _, source)| source::inline(source).is_none())
        .map(|(key, n, _)| {
            (
                format!("{key}.{n}"),
                "must be text: files are read by the caller that starts the execution, not during the execution".to_owned(),
            )
        })
        .collect()
}

fn is_dry(ctx: &AdapterContext<'_>) -> bool {
    ctx.input().get("dryRun") == Some(&Value::Bool(true))
}

fn bind(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeDecision, Fault> {
    let plan = plan_extra(ctx)?;
    let node = node_extra(ctx, act)?;
    let steps = ctx.state.acts.len() - 1;
    if steps >= plan.max_steps as usize {
        let text = format!(
            "step budget exceeded: workflow '{}' ran {steps} steps (max_steps: {})",
            plan.id, plan.max_steps
        );
        return Err(Fault::failure(STEP_BUDGET, text).with_retryable(false));
    }
    let id = &ctx.node_of(act).id;
    project::note(ctx, &json!({ "type": "node:enter", "node": id, "instruction": node.instruction }));
    let skills = &node.work.skills;
    let gives = |id: &String| {
        plan.skills.get(id).map_or(skill::WELL_KNOWN.contains(&id.as_str()), super::model::Skill::gives)
    };
    if !skills.is_empty() && !skills.iter().any(gives) {
        let text =
            format!("Node \"{id}\" requires skills [{}] but none of them is available", skills.join(", "));
        return Err(Fault::failure(code::SWENY_SKILLS_MISSING.as_str(), text).with_retryable(false));
    }
    if let Some(requires) = &node.work.requires
        && let Some(result) = unmet(ctx, requires)?
    {
        return Ok(finish(&result));
    }
    let instruction = instruct::instruction(&plan, &node, ctx.input());
    Ok(work(ctx, act, &plan, &node, instruction))
}

/// Returns the result of a node whose requirements do not hold; `None` if they hold.
fn unmet(ctx: &AdapterContext<'_>, requires: &NodeRequirements) -> Result<Option<NodeResult>, Fault> {
    let seen = result::context(ctx);
    let problems = eval::rule_problems(&requires.output_required, &requires.output_matches, &seen)?;
    if problems.is_empty() {
        return Ok(None);
    }
    let problems: Vec<String> = problems.into_iter().map(|problem| format!("  - {problem}")).collect();
    let problems = problems.join("\n");
    Ok(Some(match requires.on_fail {
        OnFail::Fail => NodeResult::new(FAILED, json!({ "error": format!("requires failed:\n{problems}") })),
        OnFail::Skip => {
            NodeResult::new(SKIPPED, json!({ "skipped_reason": format!("requires not met:\n{problems}") }))
        }
    }))
}

fn work(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    plan: &PlanExtra,
    node: &NodeExtra,
    instruction: String,
) -> NodeDecision {
    let one = ctx.node_of(act);
    NodeDecision::Ask(Box::new(TaskRequest {
        instruction: Some(instruction),
        context: instruct::surroundings(plan, &one.id, node),
        ..TaskRequest::agent(one.agent.clone().unwrap_or_default(), result::context(ctx))
    }))
}

/// One attempt at a node's work, with its judgements and reflection.
struct WorkAttempt<'a> {
    work: &'a RecordedReply,
    judgements: Vec<&'a RecordedReply>,
    reflection: Option<&'a RecordedReply>,
}

fn attempts<'a>(replies: &'a [RecordedReply]) -> Vec<WorkAttempt<'a>> {
    let mut attempts: Vec<WorkAttempt<'a>> = Vec::new();
    for reply in replies {
        match (reply.tag.as_str(), attempts.last_mut()) {
            (TaskRequest::WORK, _) => {
                attempts.push(WorkAttempt { work: reply, judgements: Vec::new(), reflection: None });
            }
            (TaskRequest::JUDGE, Some(last)) => last.judgements.push(reply),
            (TaskRequest::REFLECT, Some(last)) => last.reflection = Some(reply),
            _ => {}
        }
    }
    attempts
}

/// Returns the next step after the replies so far.
fn go_on(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeDecision, Fault> {
    let plan = plan_extra(ctx)?;
    let node = node_extra(ctx, act)?;
    let attempts = attempts(&ctx.act(act).replies);
    let count = attempts.len();
    let Some(attempt) = attempts.into_iter().next_back() else {
        return Ok(NodeDecision::Done(ActivationOutput::default()));
    };
    let mut result = NodeResult::of_reply(&attempt.work.result, &node.work);
    if result.status == FAILED && node.work.fail_soft {
        result.status = SUCCESS;
        result.data.insert("fail_soft".into(), json!(true));
        return Ok(finish(&result));
    }
    if result.status != SUCCESS {
        return Ok(finish(&result));
    }
    let malformed = eval::missing_output(&node.work, &result);
    let malformed = malformed.or_else(|| eval::broken_output(&node.work, &result));
    let (verdicts, error) = match malformed {
        Some(verdict) => {
            let error = verdict.reasoning.clone().unwrap_or_default();
            (vec![verdict], error)
        }
        None => match eval::judge(&plan, &node.work, &result, &attempt.judgements) {
            JudgingOutcome::Ask(ix) => return Ok(ask_judge(&plan, &node, &result, ix)),
            JudgingOutcome::Failed(fault) => return Err(fault),
            JudgingOutcome::All(verdicts) => {
                let lines: Vec<String> =
                    verdicts.iter().filter(|verdict| !verdict.pass).map(EvalVerdict::line).collect();
                (verdicts, format!("eval failed (policy: all_pass):\n{}", lines.join("\n")))
            }
        },
    };
    let failing: Vec<&EvalVerdict> = verdicts.iter().filter(|verdict| !verdict.pass).collect();
    result.evals = verdicts.iter().map(EvalVerdict::to_json).collect();
    if failing.is_empty() {
        return Ok(finish(&result));
    }
    let retry = node.work.retry.as_ref().filter(|retry| count <= super::lower::whole(retry.max) as usize);
    let Some(retry) = retry else {
        result.status = FAILED;
        result.data.insert("error".into(), json!(error));
        return Ok(finish(&result));
    };
    let hint = retry.instruction.as_ref();
    if let (Some(question), None) = (instruct::question(hint), attempt.reflection) {
        return Ok(ask_reflection(&plan, &node, &result, question));
    }
    let reflection = attempt.reflection.and_then(|replied| replied.result.as_ref().ok());
    let preamble =
        instruct::preamble(hint, reflection.and_then(|reply| eval::text_of(&reply.output)), &failing);
    project::note(
        ctx,
        &json!({
            "type": "node:retry", "node": ctx.node_of(act).id, "attempt": count, "reason": error, "preamble": preamble,
        }),
    );
    let instruction = instruct::instruction(&plan, &node, ctx.input());
    Ok(work(ctx, act, &plan, &node, instruct::again(&preamble, &instruction)))
}

fn ask_judge(plan: &PlanExtra, node: &NodeExtra, result: &NodeResult, ix: usize) -> NodeDecision {
    let evaluator = &node.work.eval[ix];
    let rubric = evaluator.rubric.as_deref().unwrap_or_default();
    let pass_when = evaluator.pass_when.as_deref().unwrap_or(eval::PASS);
    let model = evaluator.model.as_ref().or(node.work.judge_model.as_ref());
    let ask = TaskRequest {
        instruction: Some(instruct::rubric(rubric, pass_when)),
        context: json!({ "evaluator": evaluator.name, "rubric": rubric, "passWhen": pass_when, "model": model }),
        ..TaskRequest::agent(
            &plan.agents.judge,
            json!({ "data": result.data, "toolCalls": result.tool_calls }),
        )
    };
    NodeDecision::Ask(Box::new(ask.tagged(TaskRequest::JUDGE)))
}

fn ask_reflection(plan: &PlanExtra, node: &NodeExtra, result: &NodeResult, question: String) -> NodeDecision {
    let input = json!({
        "instruction": node.instruction,
        "data": result.data,
        "toolCalls": result.tool_calls,
        "evals": result.evals,
    });
    let model = node.work.model.as_ref();
    let context = model.map_or(Value::Null, |model| json!({ "model": model }));
    let ask = TaskRequest {
        instruction: Some(question),
        context,
        ..TaskRequest::agent(&plan.agents.reflect, input)
    };
    NodeDecision::Ask(Box::new(ask.tagged(TaskRequest::REFLECT)))
}

/// Ends a visit with a result. The fact of the end becomes the event `node:exit`, see `project`.
fn finish(result: &NodeResult) -> NodeDecision {
    let text = |key: &str| result.data.get(key).and_then(Value::as_str).map(str::to_owned);
    let output = ActivationOutput::new(result.to_json());
    match result.status {
        FAILED => {
            let text = text("error").unwrap_or_else(|| "the node reported that it failed".to_owned());
            NodeDecision::FailWith(Fault::failure(NODE_FAILED, text).with_retryable(false), output)
        }
        SKIPPED => NodeDecision::Skip {
            reason: text("skipped_reason").unwrap_or_else(|| "skipped".to_owned()),
            output,
        },
        _ => NodeDecision::Done(output),
    }
}

fn when<'a>(ctx: &AdapterContext<'a>, edge: EdgeIndex) -> Option<&'a str> {
    ctx.plan().edge(edge).extra.get("when").and_then(Value::as_str)
}

fn follow(ctx: &AdapterContext<'_>, act: ActivationId, edge: EdgeIndex, reason: &str) -> RouteDecision {
    let to = &ctx.plan().node(ctx.plan().edge(edge).to).id;
    project::route(ctx, &ctx.node_of(act).id, to, reason);
    RouteDecision::Tokens(vec![OutgoingToken::port(edge)])
}

fn end(ctx: &AdapterContext<'_>, act: ActivationId, reason: &str) -> RouteDecision {
    project::route(ctx, &ctx.node_of(act).id, "(end)", reason);
    RouteDecision::End(reason.to_owned())
}

fn ask_route(ctx: &AdapterContext<'_>, act: ActivationId, choices: &[(EdgeIndex, &str)]) -> RouteDecision {
    for (node, fields) in result::undeclared(ctx, act) {
        let text = format!("declared output missing from the result: {}", fields.join(", "));
        project::note(
            ctx,
            &json!({ "type": "node:warning", "node": node, "message": text, "fields": fields }),
        );
    }
    let plan = match plan_extra(ctx) {
        Ok(plan) => plan,
        Err(fault) => return RouteDecision::Fail(fault),
    };
    let choices: Vec<Value> = choices
        .iter()
        .map(|(edge, text)| json!({ "id": ctx.plan().node(ctx.plan().edge(*edge).to).id, "description": text }))
        .collect();
    let ids: Vec<&Value> = choices.iter().map(|choice| &choice["id"]).collect();
    let mut context = json!({ "node": ctx.node_of(act).id, "choices": choices, "ids": ids });
    if let Some(model) = &plan.model {
        context["model"] = json!(model);
    }
    let ask = TaskRequest {
        instruction: Some(instruct::ROUTE.to_owned()),
        context,
        ..TaskRequest::agent(
            plan.agents.route.clone(),
            json!({ "context": result::route_view(ctx), "choices": choices }),
        )
    };
    RouteDecision::Ask(Box::new(ask.tagged(TaskRequest::ROUTE)))
}

fn choose(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    choices: &[(EdgeIndex, &str)],
    default: Option<EdgeIndex>,
    reply: &RecordedReply,
) -> RouteDecision {
    let answer = match &reply.result {
        Ok(reply) => Ok(answered(&reply.output)),
        Err(fault) if fault.code == code::NO_SUCH_AGENT.as_str() => {
            return RouteDecision::Fail(without_judge(ctx, fault));
        }
        Err(fault) => Err(format!("route evaluation failed: {}", fault.message)),
    };
    let target = |edge: EdgeIndex| ctx.plan().node(ctx.plan().edge(edge).to).id.as_str();
    if let Ok(id) = &answer
        && let Some((edge, text)) = choices.iter().find(|(edge, _)| target(*edge) == id)
    {
        return follow(ctx, act, *edge, text);
    }
    let why = answer.map_or_else(|why| why, |id| format!("invalid route target '{id}' with no default edge"));
    match default {
        Some(edge) => {
            ctx.note(json!({ "route_fallback": why }));
            follow(ctx, act, edge, DEFAULT)
        }
        None => end(ctx, act, &why),
    }
}

/// Returns the fault of plain-language conditions that no agent can judge: a default would hide
/// that they were never evaluated.
fn without_judge(ctx: &AdapterContext<'_>, fault: &Fault) -> Fault {
    let agent = plan_extra(ctx).map(|plan| plan.agents.route.clone()).unwrap_or_default();
    let text = format!("no agent judges the conditions in plain language: {}", fault.message);
    let hint = format!(
        "name an agent that judges with `--default-agent route=NAME`, or add an agent file '{agent}'"
    );
    Fault::failure(code::CONDITIONS_WITHOUT_JUDGE.as_str(), text).with_retryable(false).with_details([hint])
}

/// Returns the id in a model's answer: a string, or an object with the id in one of the usual
/// fields.
fn answered(output: &Arc<Value>) -> String {
    let member = ["choice", "id", "to", "text"].iter().find_map(|key| output.get(key));
    let text = member.unwrap_or(output).as_str().unwrap_or_default();
    text.trim().trim_matches(['"', '\'', '`']).to_owned()
}
