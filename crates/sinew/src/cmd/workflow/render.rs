//! `sinew workflow render`: draws the graph in several formats.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sinew_diagram::{DrawError, Drawing};
use sinew_inspection::drawing::{self, DrawnProgress};
use sinew_inspection::record::Record;
use sinew_inspection::view_context::ViewContext;
use sinew_inspection::waiting::waits;
use sinew_operations::deployment::{is_workflow_name, load_deployed};
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::export_file;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file::{self, Options};
use sinew_plan::Plan;
use sinew_protocol::code;
use sinew_runtime::local;

use crate::cmd::execution::Which;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew workflow render flow.yaml                            # as text, in a terminal
  sinew workflow render flow.yaml --format mermaid           # for a pull request
  sinew workflow render flow.yaml -O flow.svg --direction lr
  sinew workflow render --execution @latest                  # with its state; also from an exported file
  sinew workflow render flow.yaml -o json                    # the drawing as data";

/// A PNG is drawn at twice its size in points, for high-density screens.
const SCALE: f32 = 2.0;

/// Arguments of `sinew workflow render`.
#[derive(Args, Debug)]
#[command(
    long_about = "Draw a workflow, optionally with the state of an execution.\n\n\
                  Name the execution by its id, @latest, or a file written by `sinew run --export`. Nodes \
                  show their state by colour, icon and label, with attempts and counts; taken edges are \
                  highlighted. The drawing then shows the plan of the execution.",
    after_help = EXAMPLES
)]
pub(crate) struct RenderArgs {
    /// The file, - for stdin, or the name of a deployed workflow (NAME or NAME@VERSION)
    #[arg(value_name = "FILE|NAME|-", required_unless_present = "execution")]
    file: Option<PathBuf>,
    /// Workflow of a file with several [default: the first]
    #[arg(short, long, value_name = "NAME", requires = "file")]
    workflow: Option<String>,
    /// Dialect of the file [default: detected from its content]
    #[arg(long, requires = "file")]
    dialect: Option<String>,
    /// Format of the drawing [default: from the extension of -O; terminal on a terminal, else mermaid]
    #[arg(long, value_enum)]
    format: Option<DrawingFormat>,
    /// Write the drawing to this file
    #[arg(short = 'O', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Direction of the graph
    #[arg(long, value_enum, ignore_case = true, default_value_t = Direction::Td)]
    direction: Direction,
    /// Colour theme of an SVG or PNG
    #[arg(long, value_enum, default_value_t = ThemeChoice::Light)]
    theme: ThemeChoice,
    /// Show the state of this execution
    #[arg(long, value_name = "ID|@latest|FILE")]
    execution: Option<String>,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Formats of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DrawingFormat {
    /// Mermaid text
    Mermaid,
    /// Vector image
    Svg,
    /// Bitmap image
    Png,
    /// Graphviz text
    Dot,
    /// Boxes and lines as text
    #[value(alias = "ascii", alias = "text")]
    Terminal,
}

/// Colour theme of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ThemeChoice {
    /// Dark text on white
    Light,
    /// Light text on a dark background
    Dark,
}

impl From<ThemeChoice> for sinew_diagram::DrawingTheme {
    fn from(theme: ThemeChoice) -> Self {
        match theme {
            ThemeChoice::Light => Self::Light,
            ThemeChoice::Dark => Self::Dark,
        }
    }
}

/// Directions, as Mermaid writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// From top to bottom
    Td,
    /// From left to right
    Lr,
}

impl From<Direction> for sinew_diagram::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Td => Self::TopDown,
            Direction::Lr => Self::LeftRight,
        }
    }
}

/// Runs the command.
pub(super) fn render(args: &RenderArgs, output: &Output) -> Result<Exit, Failure> {
    if output.format == Format::Name || (output.is_machine() && (args.format.is_some() || args.out.is_some()))
    {
        return Err(Failure::usage(
            "-o prints the drawing as data and cannot be combined with --format or -O",
        )
        .hint("use -o json for the data, or --format and -O for a drawing"));
    }
    let drawing = draw(args, output)?;
    if output.is_machine() {
        output.value(&drawing, |_| String::new());
        return Ok(Exit::Ok);
    }
    let form = form(args)?;
    if form == DrawingFormat::Png && args.out.is_none() && std::io::stdout().is_terminal() {
        return Err(Failure::usage("a PNG cannot be shown in a terminal").hint("name a file with -O"));
    }
    if args.theme == ThemeChoice::Dark && !matches!(form, DrawingFormat::Svg | DrawingFormat::Png) {
        return Err(Failure::usage("--theme applies to --format svg and png only")
            .hint("other formats have no background"));
    }
    let bytes = paint(&drawing, form, args.theme.into(), args.out.is_some(), output)
        .map_err(|error| Failure::new(FailureKind::Failed, error.code(), error.to_string()))?;
    match &args.out {
        Some(path) => {
            std::fs::write(path, bytes).map_err(|error| {
                Failure::new(
                    FailureKind::Failed,
                    code::FILE_CANNOT_BE_WRITTEN.as_str(),
                    format!("cannot write {}: {error}", path.display()),
                )
            })?;
            output.note(&format!("wrote {}", path.display()));
        }
        None => output.bytes(&bytes),
    }
    Ok(Exit::Ok)
}

fn draw(args: &RenderArgs, output: &Output) -> Result<Drawing, Failure> {
    let direction = args.direction.into();
    let file = args.file.as_deref().map(|path| plan(path, args, output)).transpose()?;
    let Some(execution) = &args.execution else {
        // The parser requires a file without an execution.
        return Ok(file.map(|plan| drawing::draw(&plan, direction, None)).unwrap_or_default());
    };
    let (record, context) = block(opened(execution, args))?;
    let graph = &record.execution.program().graph;
    if file.is_some_and(|plan| sinew_plan::digest(&plan) != graph.digest()) {
        output.note("warning: the workflow has changed since; the drawing shows the plan of the execution");
    }
    let run = DrawnProgress::of(graph, record.execution.journal()).with_waits(&waits(&record, &context));
    let mut drawing = drawing::draw(graph.plan(), direction, Some(&run));
    drawing.caption = Some(drawing::caption(&record));
    Ok(drawing)
}

/// Reads an execution and its context.
async fn opened(execution: &str, args: &RenderArgs) -> Result<(Record, ViewContext), Failure> {
    let which = Which { id: execution.to_owned(), mesh: args.mesh.clone() };
    let found = if Path::new(execution).is_file() {
        FoundExecution { record: export_file::read(Path::new(execution))?, remote: None }
    } else {
        which.open().await?
    };
    // A file shows the time of its last fact, without the state of a mesh.
    let now = if found.remote.is_some() { local::now() } else { found.record.execution.state().at };
    let context = ViewContext::of(&found.record.execution, now, &found.presence().await?);
    Ok((found.record, context))
}

fn plan(path: &Path, args: &RenderArgs, output: &Output) -> Result<Plan, Failure> {
    let options =
        Options { dialect: args.dialect.clone(), variables: args.variables.rules()?, ..Options::default() };
    let loaded = if is_workflow_name(path) && !args.mesh.local {
        block(async { load_deployed(&args.mesh.operator().await?, path).await })?
    } else {
        workflow_file::workflow(path, &options)?
    };
    let lowered = loaded.pick(args.workflow.as_deref())?;
    if args.workflow.is_none() && loaded.workflows.len() > 1 {
        output.note(&format!(
            "note: showing '{}', the first of {} workflows; choose one with --workflow",
            lowered.plan.name,
            loaded.workflows.len()
        ));
    }
    Ok(lowered.plan.clone())
}

fn form(args: &RenderArgs) -> Result<DrawingFormat, Failure> {
    if let Some(form) = args.format {
        return Ok(form);
    }
    let Some(out) = &args.out else {
        let terminal = std::io::stdout().is_terminal();
        return Ok(if terminal { DrawingFormat::Terminal } else { DrawingFormat::Mermaid });
    };
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("mmd" | "mermaid") => Ok(DrawingFormat::Mermaid),
        Some("svg") => Ok(DrawingFormat::Svg),
        Some("png") => Ok(DrawingFormat::Png),
        Some("dot" | "gv") => Ok(DrawingFormat::Dot),
        Some("txt") => Ok(DrawingFormat::Terminal),
        _ => Err(Failure::usage(format!("cannot tell the format from the extension of {}", out.display()))
            .hint("add --format mermaid, svg, png, dot or terminal")),
    }
}

fn paint(
    drawing: &Drawing,
    form: DrawingFormat,
    theme: sinew_diagram::DrawingTheme,
    to_file: bool,
    output: &Output,
) -> Result<Vec<u8>, DrawError> {
    let text = match form {
        DrawingFormat::Mermaid => sinew_diagram::mermaid(drawing),
        DrawingFormat::Dot => sinew_diagram::dot(drawing),
        DrawingFormat::Svg => sinew_diagram::svg_in(drawing, theme)?,
        DrawingFormat::Png => return sinew_diagram::png_in(drawing, SCALE, theme),
        DrawingFormat::Terminal => match terminal_size::terminal_size() {
            Some((width, _)) if !to_file && std::io::stdout().is_terminal() => {
                sinew_diagram::terminal_within(drawing, output.ascii, usize::from(width.0))?
            }
            _ => sinew_diagram::terminal(drawing, output.ascii)?,
        },
    };
    Ok(text.into_bytes())
}
