//! The providers of the configuration as the loop's model.

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use super::model::{Model, ModelError};
use crate::gateway::provider::{Endpoint, ProviderError, Providers};

/// Asks whichever provider has the model that a request names.
#[derive(Debug, Clone)]
pub struct ProviderModel(Providers);

impl ProviderModel {
    /// These providers.
    pub fn new(providers: Providers) -> Self {
        Self(providers)
    }
}

impl Model for ProviderModel {
    fn complete(&self, mut request: Value) -> BoxFuture<'_, Result<Value, ModelError>> {
        Box::pin(async move {
            let wanted = request.get("model").and_then(Value::as_str).unwrap_or_default();
            let model = self.0.model(wanted).map_err(|error| of_provider(&error))?;
            request["model"] = model.name.into();
            let answered = model.provider.send(Endpoint::ChatCompletions, Bytes::from(request.to_string())).await;
            answered.map(|answered| answered.answer).map_err(|error| of_provider(&error))
        })
    }
}

fn of_provider(error: &ProviderError) -> ModelError {
    ModelError { code: "provider_error".to_owned(), message: error.to_string() }
}
