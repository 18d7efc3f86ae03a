//! The trait of actors for Rust users.

use std::fmt;
use std::future::Future;

use serde::de::DeserializeOwned;

use crate::context::{Context, StateType};
use crate::definition::ActorDefinition;
use crate::executor::Offer;
use crate::id::QueueId;
use crate::outcome::CallError;

/// Code that is called once for each event of an instance, and owns the instance's state.
///
/// The state begins as its default. What a call does to it, and what it emits, sends and schedules, is
/// committed in one transaction with the end of the event; a call that fails or is lost leaves nothing.
pub trait Actor: Send + Sync + 'static {
    /// What is kept for each key.
    type State: StateType;
    /// What the data of events is read as. An event that is none fails with the path of the fault.
    type Event: DeserializeOwned + Send + 'static;

    /// Name, subscriptions, queue and retry.
    fn definition(&self) -> ActorDefinition;

    /// One event.
    fn process(
        &self,
        cx: &mut Context<Self::State>,
        event: Self::Event,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Which of the rows that wait start next, in that order: for [`QueueMode::Custom`]. None: all are passed over,
    /// and others offered, till something happens.
    ///
    /// # Errors
    /// The instance is asked again after a while; others are not held up.
    ///
    /// [`QueueMode::Custom`]: crate::policy::QueueMode::Custom
    fn select(&self, state: &Self::State, offers: &[Offer]) -> Result<Vec<QueueId>, Failure> {
        let _ = (state, offers);
        Err(Failure::new("the actor's queue is custom, and it has no select"))
    }
}

/// Why an actor's code gave up. Any error becomes one with `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(CallError);

impl Failure {
    /// With that text.
    #[must_use]
    pub fn new(text: impl fmt::Display) -> Self {
        Self(CallError::Failed(text.to_string()))
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: &(dyn std::error::Error + 'static) = &error;
        if let Some(call) = error.downcast_ref::<CallError>() {
            return Self(call.clone());
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self(CallError::Failed(text))
    }
}
