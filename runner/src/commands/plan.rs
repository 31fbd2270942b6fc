//! `tidegate plan`: prints what a reload, or the next run, would change.

use std::fmt::Write as _;

use crate::cli::{Format, PlanCommand};
use crate::client::{CommandTarget, options, other_question, print_json, print_painted};
use crate::output::console;
use crate::output::console::{Paint, painted};
use crate::output::exit;
use crate::output::exit::Exit;
use crate::output::table::on_one_line;
use crate::output::terminal::{self, cut, width};
use crate::query::{Answer, Planned, Query};
use tidegate_config::{ConfigurationDigest, PartChange, Plan, PlanAction, PlanState, PlannedSetting};
use tidegate_engine::Generation;

/// The width of a setting's values at least, also in a narrow terminal.
const ROOM_MIN: usize = 20;

pub(crate) fn plan(command: &PlanCommand) -> Exit {
    show(command).unwrap_or_else(|exit| exit)
}

fn show(command: &PlanCommand) -> Result<Exit, Exit> {
    let options = options(command.data.clone(), &command.plugins);
    let place = CommandTarget::with_mistakes(&command.config, &options)?;
    place.warn_of_other_configuration();
    let planned = match place.ask_if_any(Query::Plan)? {
        Some((Answer::Plan(planned), _)) => planned,
        Some((Answer::Missing(what), _)) => return Err(exit::fail(what)),
        Some(_) => return Err(other_question()),
        None => match Generation::load(&command.config, &options) {
            Ok(new) => {
                let (old, new) = (ConfigurationDigest::default(), new.configuration.digest());
                Planned::Plan(Plan::between(&old, &new, &PlanState::default()))
            }
            Err(diagnostics) => Planned::mistakes(&diagnostics),
        },
    };
    let plan = match planned {
        Planned::Plan(plan) => plan,
        Planned::Mistakes { records, .. } if command.format == Format::Json => {
            return Ok(print_json(&records, Exit::Configuration));
        }
        Planned::Mistakes { text, .. } => {
            console::write(&text);
            return Ok(Exit::Configuration);
        }
    };
    let exit = match () {
        () if plan.is_empty() => Exit::Done,
        () if plan.refused.is_empty() => Exit::Changes,
        () => Exit::Failed,
    };
    if command.format == Format::Json {
        return Ok(print_json(&plan, exit));
    }
    print_painted(&described(&plan, width(), console::prints_colours()));
    Ok(exit)
}

/// The changes and their numbers, for people.
pub(crate) fn described(plan: &Plan, width: Option<usize>, colours: bool) -> String {
    let mut notes = String::new();
    for note in &plan.notes {
        let _ = writeln!(notes, "note: {}", on_one_line(note));
    }
    if plan.is_empty() {
        return format!("{notes}nothing changes");
    }
    let paint = |text: &str, paint: Option<Paint>| match paint {
        Some(paint) if colours => painted(text, paint),
        _ => text.to_owned(),
    };
    let mut text = String::new();
    for PartChange { kind, name, action, settings, effects, .. } in &plan.changes {
        let (sign, colour) = look(*action);
        let name = if name.is_empty() { name.clone() } else { format!(" {}", on_one_line(name)) };
        let _ = writeln!(text, "{}", paint(&format!("{sign} {}{name}", kind.as_str()), colour));
        let keys = settings.iter().map(|setting| terminal::columns(&setting.key)).max().unwrap_or(0);
        let room = width.map(|width| width.saturating_sub(keys + 6).max(ROOM_MIN));
        for setting in settings {
            let gap = " ".repeat(keys - terminal::columns(&setting.key));
            let values = on_one_line(&values(setting, *action));
            let values = room.map_or_else(|| values.clone(), |room| cut(&values, room));
            let _ = writeln!(text, "    {}{gap}  {values}", on_one_line(&setting.key));
        }
        for effect in effects {
            let _ = writeln!(text, "    {}", paint(&on_one_line(effect), Some(Paint::Dim)));
        }
    }
    if !plan.notes.is_empty() {
        let _ = write!(text, "\n{notes}");
    }
    let _ = write!(
        text,
        "\nparts: {} added, {} changed, {} removed",
        plan.count(PlanAction::Add),
        plan.count(PlanAction::Change),
        plan.count(PlanAction::Remove)
    );
    for why in &plan.refused {
        let _ = write!(text, "\n{}", paint(&format!("refused: {}", on_one_line(why)), Some(Paint::Red)));
    }
    text
}

fn look(action: PlanAction) -> (char, Option<Paint>) {
    match action {
        PlanAction::Add => ('+', Some(Paint::Green)),
        PlanAction::Change => ('~', Some(Paint::Yellow)),
        PlanAction::Remove => ('-', Some(Paint::Red)),
        PlanAction::Affect => ('!', Some(Paint::Yellow)),
    }
}

/// The value of a setting, or both if the part is in both configurations.
fn values(PlannedSetting { old, new, .. }: &PlannedSetting, action: PlanAction) -> String {
    match (old, new) {
        (None, None) => String::new(),
        (Some(one), None) | (None, Some(one)) if action != PlanAction::Change => one.clone(),
        (old, new) => {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
            format!("{} → {}", shown(old), shown(new))
        }
    }
}
