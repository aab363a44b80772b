//! `sinew tool pin` and the like: what administrators set for entries of the catalogue.

use clap::Args;
use sinew_documents::words;
use sinew_operations::agent_list::find_entry;
use sinew_operations::catalogue_records::change_record;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::online;
use sinew_protocol::catalogue::Stage;
use sinew_protocol::catalogue_record::CatalogueRecord;

use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of the commands that mark an entry.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew tool pin refund\n  sinew tool unpin refund\n  sinew tool hide refund-test\n  sinew tool unhide refund-test"
)]
pub(crate) struct MarkArgs {
    /// Name of the agent or workflow
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew tool deprecate`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew tool deprecate refund --replaced-by refund-v2\n  sinew tool undeprecate refund"
)]
pub(crate) struct DeprecateArgs {
    /// What to use instead
    #[arg(long, value_name = "NAME")]
    replaced_by: Option<String>,
    #[command(flatten)]
    entry: MarkArgs,
}

/// A change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Pin,
    Unpin,
    Hide,
    Unhide,
    Undeprecate,
}

/// Changes the record of an entry.
pub(super) async fn mark(args: &MarkArgs, mark: Mark, output: &Output) -> Result<Exit, Failure> {
    let sets = matches!(mark, Mark::Pin | Mark::Hide);
    let done = match mark {
        Mark::Pin => "pinned",
        Mark::Unpin => "no longer pinned",
        Mark::Hide => "hidden from lists and searches; calls are not affected",
        Mark::Unhide => "no longer hidden",
        Mark::Undeprecate => "has the stage of its author",
    };
    let change = |record: &mut CatalogueRecord| match mark {
        Mark::Pin | Mark::Unpin => record.pinned = sets,
        Mark::Hide | Mark::Unhide => record.hidden = sets,
        Mark::Undeprecate => (record.stage, record.replaced_by) = (None, None),
    };
    change_entry(args, sets, done, change, output).await
}

/// Marks an entry as deprecated.
pub(super) async fn deprecate(args: &DeprecateArgs, output: &Output) -> Result<Exit, Failure> {
    let change = |record: &mut CatalogueRecord| {
        record.stage = Some(Stage::Deprecated);
        record.replaced_by.clone_from(&args.replaced_by);
    };
    change_entry(&args.entry, true, "deprecated; calls are not affected", change, output).await
}

async fn change_entry(
    args: &MarkArgs,
    is_needed: bool,
    done: &str,
    change: impl Fn(&mut CatalogueRecord),
    output: &Output,
) -> Result<Exit, Failure> {
    let mesh = args.mesh.open("cli").await?;
    if is_needed {
        find_entry(&mesh, &online(&mesh).await?, &args.name).await?;
    }
    let record = change_record(&mesh, &args.name, change).await?;
    output.value(&record, |record| format!("{}: {done}", words::name(&record.name)));
    Ok(Exit::Ok)
}
