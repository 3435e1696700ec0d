//! The smallest embedding: one tool of your own, one program that finds and calls it.
//!
//! `cargo run --example embed`

use std::{error::Error, sync::Arc};

use serde_json::json;
use toolbridge::{
    catalog::Tool,
    host::{Host, RunOptions},
    policy::Scope,
    sandbox::{PoolOptions, Sandbox},
};

fn main() -> Result<(), Box<dyn Error>> {
    // First thing in main: the same executable is started again as the worker that runs programs.
    toolbridge::init();

    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
    });
    let weather = Tool::new("weather", schema, |args| async move {
        Ok::<_, String>(json!({ "city": args["city"], "celsius": 21 }).into())
    })
    .description("Current temperature in a city.");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sandbox = Arc::new(Sandbox::new(PoolOptions::default())?);
        let host = Host::builder().tool(weather).sandbox(sandbox).build()?;
        let session = host.session(Scope::default())?;

        let program = r#"
            const [tool] = await openclaw.tools.search("temperature of a city");
            const cities = ["Oslo", "Lima"];
            const answers = await Promise.all(cities.map((city) => openclaw.tools.call(tool.id, { city })));
            return answers.map(({ result }) => `${result.details.city}: ${result.details.celsius} °C`);
        "#;
        let outcome = session.run(program, RunOptions::default()).await;
        match outcome.error {
            None => println!("{}", outcome.value.unwrap_or_default()),
            Some(error) => return Err(error.message.into()),
        }
        Ok(())
    })
}
