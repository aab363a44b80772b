//! Checks that the credentials have the permissions of their role, and no others.

use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::code;
use sinew_protocol::permission::{OWN_RIGHTS, Role, compare};

use super::{CheckState, Doctor, DoctorCheck};

/// Maximum number of permissions named; the others are counted.
const NAMED: usize = 5;

/// Compares the granted permissions with the table.
pub(super) async fn check(doctor: &mut Doctor, mesh: &Mesh, roles: &[Role]) {
    let granted = match mesh.admin().rights().await {
        Ok(granted) => granted,
        Err(MeshError::Forbidden { .. }) => {
            let text = format!(
                "the right to publish to {OWN_RIGHTS} is missing, so the other rights cannot be compared"
            );
            return say(
                doctor,
                CheckState::Fail,
                text,
                Some(code::CREDENTIALS_LACK_RIGHT.as_str()),
                Some(table(roles, mesh)),
            );
        }
        Err(error) => return doctor.failed("rights", error.into()),
    };
    let Some(granted) = granted else {
        let info = mesh.client().server_info();
        let here = ["127.0.0.1", "localhost", "::1"].contains(&info.host.as_str());
        if !info.auth_required && here {
            let text = "anyone with access to this server has all rights; it listens on this machine only";
            return say(doctor, CheckState::Ok, text.to_owned(), None, None);
        }
        let text = if info.auth_required {
            "these credentials have all rights in their account"
        } else {
            "the server does not require a password: anyone with access to it has all rights"
        };
        let hint = "sinew mesh permissions --format nats --user NAME:ROLE:LOGIN";
        return say(
            doctor,
            CheckState::Warn,
            text.to_owned(),
            Some(code::CREDENTIALS_TOO_WIDE.as_str()),
            Some(hint.to_owned()),
        );
    };
    let found = compare(mesh.namespace(), mesh.caller(), &granted, roles);
    let of = found.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" and ");
    let name = mesh.caller().name().unwrap_or_else(|| mesh.caller().to_string());
    let hint = || Some(table(&found.roles, mesh));
    if !found.missing.is_empty() {
        let text = format!("{name} as {of} requires the right to {}", listed(&found.missing));
        say(doctor, CheckState::Fail, text, Some(code::CREDENTIALS_LACK_RIGHT.as_str()), hint());
    }
    if !found.wide.is_empty() {
        let text = format!("{name} as {of} does not require the right to {}", listed(&found.wide));
        say(doctor, CheckState::Warn, text, Some(code::CREDENTIALS_TOO_WIDE.as_str()), hint());
    }
    if found.roles.contains(&Role::Agent) && !found.roles.contains(&Role::Client) {
        let text = "an agent of this role calls agents by name (`sinew mesh permissions --calls`): tools by pattern or skill, \
                    such as `peer: \"Price*\"`, need the role client too";
        let what = "calls";
        doctor.checks.push(DoctorCheck {
            what: what.into(),
            state: CheckState::Ok,
            message: text.to_owned(),
            hint: None,
            code: None,
        });
    }
    if found.missing.is_empty() && found.wide.is_empty() {
        say(doctor, CheckState::Ok, format!("{name} has exactly the rights that {of} requires"), None, None);
    }
}

fn say(
    doctor: &mut Doctor,
    state: CheckState,
    message: String,
    code: Option<&'static str>,
    hint: Option<String>,
) {
    doctor.checks.push(DoctorCheck {
        what: "rights".into(),
        state,
        message,
        hint,
        code: code.map(Into::into),
    });
}

/// Returns the command that prints the complete table.
fn table(roles: &[Role], mesh: &Mesh) -> String {
    let role = match roles {
        [role] => format!(" --role {}", role.as_str()),
        _ => String::new(),
    };
    format!("sinew mesh permissions{role} --name {} --namespace {}", mesh.caller(), mesh.namespace())
}

fn listed(rights: &[String]) -> String {
    let named = rights.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match rights.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
