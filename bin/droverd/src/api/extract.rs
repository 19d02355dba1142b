//! Reading requests: bounded in size and time, and refused in our own words.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use drover_api::{ErrorCode, Refusal, limits as api_limits};
use serde::de::DeserializeOwned;

use super::Refused;
use crate::limits;

/// A JSON body.
pub struct JsonBody<T>(pub T);

/// A JSON body that may have a plan in it, or what many domains need.
pub struct PlanBody<T>(pub T);

/// A JSON body that may be left out, which means the default.
pub struct OptionalBody<T>(pub T);

/// A JSON body of somebody whom nobody knows yet.
pub struct SmallBody<T>(pub T);

/// The name or id in a path.
pub struct Named<T>(pub T);

/// The two variable parts of a path.
#[derive(Debug)]
pub struct NamedTwo<T, U>(pub T, pub U);

/// The refusal of a query.
pub fn unreadable(problem: &QueryRejection) -> Refusal {
    let message = format!("the query: {}", problem.body_text());
    Refusal::new(ErrorCode::BadRequest, message)
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Refused;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let bytes = read(request.into_body(), api_limits::REQUEST_BYTES).await?;
        Ok(Self(decode(&bytes)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for PlanBody<T> {
    type Rejection = Refused;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let bytes = read(request.into_body(), api_limits::PLAN_BYTES).await?;
        Ok(Self(decode(&bytes)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for SmallBody<T> {
    type Rejection = Refused;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let bytes = read(request.into_body(), limits::JOIN_BYTES).await?;
        Ok(Self(decode(&bytes)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Refused;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let bytes = read(request.into_body(), api_limits::REQUEST_BYTES).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(T::default()));
        }
        // A client of before this route had a body sends null.
        Ok(Self(decode::<Option<T>>(&bytes)?.unwrap_or_default()))
    }
}

impl<S: Send + Sync, T: FromStr<Err: Display>> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::from_request_parts(parts, state).await;
        let Path(text): Path<String> = path.map_err(|error| bad(&error))?;
        Ok(Self(parsed(&text)?))
    }
}

impl<S: Send + Sync, T: FromStr<Err: Display>, U: FromStr<Err: Display>> FromRequestParts<S>
    for NamedTwo<T, U>
{
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::from_request_parts(parts, state).await;
        let Path((one, two)): Path<(String, String)> = path.map_err(|error| bad(&error))?;
        Ok(Self(parsed(&one)?, parsed(&two)?))
    }
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, Refused> {
    text.parse().map_err(|error| bad(&error))
}

fn bad(problem: &dyn Display) -> Refused {
    Refused(Refusal::new(
        ErrorCode::BadRequest,
        format!("the path: {problem}"),
    ))
}

/// A body within its bounds.
pub async fn read(body: Body, most: usize) -> Result<axum::body::Bytes, Refused> {
    match tokio::time::timeout(limits::BODY, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // Larger, or cut off; in that case nobody reads the answer.
        Ok(Err(_)) => {
            let message = format!("the request body is larger than {most} bytes");
            Err(Refusal::new(ErrorCode::TooLarge, message).into())
        }
        Err(_) => {
            let seconds = limits::BODY.as_secs();
            let message = format!("the request body was not complete within {seconds} s");
            Err(Refusal::new(ErrorCode::Timeout, message).into())
        }
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    drover_api::decode(bytes).map_err(|error| {
        let message = format!("the request body cannot be used: {error}");
        Refusal::new(ErrorCode::BadRequest, message)
            .next("GET /v1/openapi.json describes it")
            .into()
    })
}
