//! A made-up catalog: systems with objects, verbs and kinds, so that every tool has neighbours that differ in one word.

use serde_json::{Map, Value, json};

use crate::{catalog::CatalogTool, random::Random};

const SYSTEMS: [(&str, [&str; 4]); 20] = [
    ("calendar", ["event", "reminder", "room", "invitation"]),
    ("billing", ["invoice", "payment", "refund", "subscription"]),
    ("tickets", ["ticket", "comment", "label", "milestone"]),
    ("mail", ["message", "newsletter", "thread", "mailbox"]),
    ("files", ["document", "folder", "link", "snapshot"]),
    ("customers", ["account", "lead", "contract", "campaign"]),
    ("warehouse", ["shipment", "pallet", "stocktake", "supplier"]),
    ("personnel", ["employee", "vacation", "payslip", "interview"]),
    ("fleet", ["vehicle", "route", "driver", "inspection"]),
    ("clinic", ["patient", "appointment", "prescription", "referral"]),
    ("library", ["book", "loan", "shelf", "reservation"]),
    ("travel", ["flight", "hotel", "itinerary", "visa"]),
    ("kitchen", ["recipe", "menu", "ingredient", "delivery"]),
    ("energy", ["meter", "tariff", "outage", "turbine"]),
    ("school", ["course", "exam", "pupil", "timetable"]),
    ("devices", ["sensor", "firmware", "relay", "alert"]),
    ("media", ["photo", "playlist", "subtitle", "broadcast"]),
    ("townhall", ["permit", "parcel", "petition", "hearing"]),
    ("laboratory", ["sample", "experiment", "instrument", "protocol"]),
    ("forum", ["post", "poll", "member", "badge"]),
];
const VERBS: [(&str, &str, &str); 12] = [
    ("create", "Creates", "Fails when one with the same reference is there already."),
    ("update", "Updates", "Fields that are left out stay as they are."),
    ("list", "Lists", "Results come in pages, newest first."),
    ("archive", "Archives", "What is archived can be brought back for ninety days."),
    ("export", "Exports", "The file is kept for a week under the address that is returned."),
    ("approve", "Approves", "Whoever asked for it can not approve it."),
    ("schedule", "Schedules", "Times are taken as local to the site."),
    ("assign", "Assigns", "Whoever had it before is told."),
    ("duplicate", "Duplicates", "Attachments are linked and not copied."),
    ("compare", "Compares", "Returns the fields that differ, each with both values."),
    ("merge", "Merges", "The older one is kept and points to the newer."),
    ("audit", "Audits", "Returns who changed what, with times."),
];
const KINDS: [&str; 8] = ["", "recurring", "regional", "external", "confidential", "seasonal", "provisional", "joint"];

/// Makes `count` different tools, at least 3.
pub(crate) fn tools(random: &mut Random, count: usize) -> Result<Vec<CatalogTool>, String> {
    let most = SYSTEMS.len() * 4 * VERBS.len() * KINDS.len();
    if count < 3 || count > most {
        return Err(format!("--tools must be from 3 to {most}"));
    }
    let mut all: Vec<(usize, usize, usize, usize)> = Vec::with_capacity(most);
    for system in 0..SYSTEMS.len() {
        for object in 0..4 {
            for verb in 0..VERBS.len() {
                all.extend((0..KINDS.len()).map(|kind| (system, object, verb, kind)));
            }
        }
    }
    random.shuffle(&mut all);
    all.truncate(count);
    Ok(all.into_iter().map(|(system, object, verb, kind)| tool(random, system, object, verb, kind)).collect())
}

fn tool(random: &mut Random, system: usize, object: usize, verb: usize, kind: usize) -> CatalogTool {
    let (system, objects) = SYSTEMS[system];
    let (verb, does, note) = VERBS[verb];
    let (object, kind) = (objects[object], KINDS[kind]);
    let phrase = if kind.is_empty() { object.to_owned() } else { format!("{kind} {object}") };
    CatalogTool {
        plugin: system.to_owned(),
        name: format!("{verb}_{}", phrase.replace(' ', "_")),
        description: format!("{does} one {phrase} of the {system} system. {note}"),
        input_schema: schema(random, object),
    }
}

fn schema(random: &mut Random, object: &str) -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let mut pool = vec![
        ("reference", text("Reference of your own by which it can be found again.")),
        (
            "due_date",
            json!({ "type": "string", "format": "date", "description": "Day by which it has to be done, as YYYY-MM-DD." }),
        ),
        ("amount", json!({ "type": "number", "minimum": 0, "description": "Amount in the currency of the site." })),
        (
            "priority",
            json!({ "type": "string", "enum": ["low", "normal", "high", "urgent"], "description": "How soon it should be dealt with." }),
        ),
        ("note", text("Note for whoever looks at it next; plain text.")),
        (
            "notify",
            json!({ "type": "boolean", "default": true, "description": "Whether those who follow it are told." }),
        ),
        (
            "tags",
            json!({ "type": "array", "items": { "type": "string" }, "description": "Tags to set; those that are there stay." }),
        ),
        (
            "page_size",
            json!({ "type": "integer", "minimum": 1, "maximum": 200, "description": "Entries of one page." }),
        ),
        ("owner", text("Who is responsible: a user name or an address.")),
        (
            "location",
            json!({ "type": "object", "description": "Where it is.", "properties": { "street": { "type": "string" }, "city": { "type": "string" }, "country": { "type": "string", "description": "Two letters." } } }),
        ),
    ];
    random.shuffle(&mut pool);
    pool.truncate(3 + random.below(4));
    let id = format!("{object}_id");
    let mut required = vec![id.clone()];
    let simple = pool.iter().filter(|(_, schema)| schema["type"] != "object" && schema["type"] != "array");
    required.extend(simple.take(2).map(|(name, _)| (*name).to_owned()));
    let mut properties = Map::new();
    properties.insert(id, text(&format!("Identifier of the {object}, as the list gives it.")));
    properties.extend(pool.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}
