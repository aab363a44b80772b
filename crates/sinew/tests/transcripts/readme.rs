//! The README, typed word for word on a terminal of 80 columns, in a copy of the checkout.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::pty::Watched;
use crate::common::{BOOKING, BROKEN, PRICING, Role, World};

/// How long a command may take; the first lists every package of the checkout.
const PATIENCE: Duration = Duration::from_mins(2);
const COLUMNS: u16 = 80;
/// Parts of a checkout that commands of the README read.
const COPIED: [&str; 6] = ["examples", "agent-cards", "crates", "Cargo.toml", "Cargo.lock", "deploy"];

const INCIDENT: &str = r#"
workflow:
  description: Prices an order and books it.
  version: "1.0"
  nodes:
    - {id: price, type: agent, agent_name: Pricing, input: {amount: "{{workflow.input.amount}}"}}
    - {id: book, type: agent, agent_name: Booking, depends_on: [price], input: {price: "{{price.output.price}}"}}
  output_mapping: {booked: "{{book.output.booked}}"}
"#;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// Blocks that show a console: the lines of each.
fn console_blocks() -> Vec<Vec<String>> {
    let mut blocks: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for line in readme().lines() {
        match line {
            "```console" => {
                inside = true;
                blocks.push(Vec::new());
            }
            "```" => inside = false,
            line if inside => blocks.last_mut().unwrap().push(line.to_owned()),
            _ => {}
        }
    }
    blocks
}

/// The block with a line that starts so.
fn block(start: &str) -> Vec<String> {
    let found = console_blocks().into_iter().find(|block| block.iter().any(|line| line.starts_with(start)));
    found.unwrap_or_else(|| panic!("the README has no block with {start:?}"))
}

/// The commands of a block, as they are typed.
fn commands(block: &[String]) -> Vec<String> {
    block.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

fn checkout(world: &World) {
    for part in COPIED {
        let copied = Command::new("cp").arg("-r").arg(root().join(part)).arg(world.path()).status().unwrap();
        assert!(copied.success(), "{part}");
    }
}

/// A shell that reads this line, as it stands in the README.
fn shell(world: &World, line: &str) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_sinew")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(world.path()).env("PATH", path.unwrap()).env("USER", "ada");
    command.env("XDG_CONFIG_HOME", world.path().join("config"));
    command.env("XDG_STATE_HOME", world.path().join("state"));
    for variable in ["NATS_URL", "NATS_CONTEXT", "SINEW_NAMESPACE", "CLICOLOR_FORCE", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

/// Types a line; what is seen at its end fits the terminal.
#[track_caller]
fn typed(world: &World, line: &str, code: i32) -> String {
    let (ended, screen) = Watched::start(shell(world, line), COLUMNS, 40).ended(PATIENCE);
    assert_eq!(ended, Some(code), "$ {line}\n{screen}");
    screen
}

/// Lines of a table are cut to the terminal; data is not.
#[track_caller]
fn fits(line: &str, screen: &str) {
    for row in screen.lines().take_while(|row| !row.starts_with('{')) {
        assert!(row.chars().count() <= usize::from(COLUMNS), "$ {line}: {row:?}");
    }
}

#[test]
fn the_tour_without_a_server_is_as_the_readme_shows_it() {
    let world = World::at(String::new());
    checkout(&world);
    let review = block("$ sinew run examples/dependency-review");
    let line = commands(&review).remove(0);
    let screen = typed(&world, &line, 0);
    fits(&line, &screen);
    let shown = |row: &str| row.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    for row in review.iter().filter(|row| row.starts_with('✓')) {
        let wanted = shown(row);
        assert!(screen.lines().any(|seen| shown(seen) == wanted), "no row {wanted:?} in\n{screen}");
    }
    for member in ["\"verdict\"", "\"report\": \"report.md\"", "artifacts in .sinew/executions/"] {
        assert!(screen.contains(member), "{member}: {screen}");
    }
    // The record that stays is read without a server.
    let failed = typed(&world, "sinew execution describe @latest", 0);
    assert!(failed.contains("succeeded"), "{failed}");
    typed(&world, "sinew execution tree @latest", 0);
    typed(&world, "sinew execution logs @latest", 0);

    let broken = block("$ sinew workflow validate broken.yaml");
    let whole = std::fs::read_to_string(root().join("examples/dependency-review/review.yaml")).unwrap();
    world.write("broken.yaml", &whole.replace("node: assess\n", "node: asess\n"));
    let screen = typed(&world, &commands(&broken)[0], 1);
    for row in broken.iter().filter(|row| !row.starts_with('$')) {
        assert!(screen.contains(row.trim_end()), "no {row:?} in\n{screen}");
    }
    // Commands within the text.
    let text = readme();
    for line in [
        "sinew explain SINEW-2105",
        "sinew test examples/orders --coverage",
        "sinew new workflow hello",
        "sinew run hello.yaml -p name=Ada",
    ] {
        assert!(text.contains(&format!("`{line}`")), "the README does not say {line}");
        let screen = typed(&world, line, 0);
        if line.starts_with("sinew run") {
            fits(line, &screen);
        }
    }
}

#[test]
fn the_mesh_and_the_incident_are_as_the_readme_shows_them() {
    let (world, port) = World::for_dev();
    checkout(&world);
    let lines = commands(&block("$ sinew dev --agents"));
    let dev = lines.iter().find(|line| line.starts_with("sinew dev")).unwrap();
    // Other tests have the usual port.
    let mut dev = Watched::start(shell(&world, &format!("exec {dev} --port {port}")), COLUMNS, 40);
    let banner = dev.wait_for("the next command", PATIENCE, |screen| screen.contains("  Next "));
    assert!(banner.contains("orders"), "{banner}");
    let run = lines.iter().find(|line| line.starts_with("sinew run orders")).unwrap();
    let seen = typed(&world, run, 0);
    assert!(seen.contains("confirmed"), "{seen}");
    let first = typed(&world, "sinew execution list -o name", 0);
    let first = first.lines().last().unwrap().trim().to_owned();

    world.write("flows/incident.yaml", INCIDENT);
    world.write("bad/pricing.agent.yaml", PRICING);
    world.write("bad/booking.agent.yaml", BROKEN);
    world.write("mended/booking.agent.yaml", BOOKING);
    let serve = |folder: &str| {
        let mut command = shell(&world, &format!("exec sinew serve agent {folder}"));
        Role(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let bad = serve("bad");
    typed(&world, "sinew workflow deploy flows", 0);
    typed(&world, "sinew run incident --mesh -p amount=21 --watch", 1);
    let incident = commands(&block("$ sinew execution list --status failed"));
    assert_eq!(incident.len(), 7, "{incident:?}");
    let mut mended = Some((bad, serve));
    let mut agents = Vec::new();
    for line in &incident {
        // The name stands for an execution of the reader.
        let line = line.replace("x7f3", &first[..6]);
        if line.contains("--watch")
            && let Some((bad, serve)) = mended.take()
        {
            assert_eq!(bad.stop(), Some(0));
            agents.push(serve("mended"));
            world.write("good/pricing.agent.yaml", PRICING);
        }
        // Like diff(1), the command ends with 1 where executions differ.
        let seen = typed(&world, &line, i32::from(line.contains(" diff ")));
        let wanted = match &line {
            line if line.contains(" list ") => "the script failed",
            line if line.contains(" describe ") => "execution retry",
            line if line.contains(" logs ") => "ZeroDivisionError",
            line if line.contains("--dry-run") => "price",
            line if line.contains("--watch") => "succeeded",
            line if line.contains(" diff ") => "first",
            _ => "",
        };
        assert!(seen.contains(wanted), "$ {line}: no {wanted:?} in\n{seen}");
    }
    assert!(world.path().join("run.json").is_file());
    drop(agents);
}
