//! Counts the orders of each customer.

use evener::prelude::*;
use serde::{Deserialize, Serialize};

/// What is kept for each key.
#[derive(Serialize, Deserialize, Default, Clone)]
struct Tally {
    orders: u64,
    cents: u64,
}

/// The data of the events that it hears.
#[derive(Deserialize)]
struct Order {
    cents: u64,
}

/// Counts the orders of each customer.
struct Customer;

impl Actor for Customer {
    type State = Tally;
    type Event = Order;

    fn definition(&self) -> ActorDefinition {
        ActorDefinition::new("customer".parse().expect("a name")).subscribe(Subscription::new(
            "orders".parse().expect("a name"),
            Path::new("subject").expect("a path"),
        ))
    }

    async fn process(&self, cx: &mut Context<Tally>, order: Order) -> Result<(), Failure> {
        cx.update(move |tally| {
            tally.orders += 1;
            tally.cents += order.cents;
        })?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().store("orders.db").actor(Customer).start()?;
    for (customer, cents) in [("ada", 1200), ("bob", 350), ("ada", 800)] {
        let order = serde_json::json!({ "cents": cents });
        runtime.append("orders", Event::json("order.placed", &order)?.with_subject(customer))?;
    }
    runtime.wait_idle(std::time::Duration::from_secs(10))?;
    let ada: Tally = runtime.state("customer", "ada")?.unwrap_or_default();
    println!("ada: {} orders, {} cents", ada.orders, ada.cents);
    runtime.stop(std::time::Duration::from_secs(10))?;
    Ok(())
}
