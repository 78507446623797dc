//! The tools `hits`, `calls` and `origin`: questions about the whole run, in pages.

use super::answer::Answer;
use super::host::Host;
use super::open_recording::{OpenRecording, page_rows};
use super::requests;
use crate::ask::{
    Call, CallsQuestion, FollowedValue, Hit, HitsQuestion, OriginQuestion, OriginStep,
};
use crate::session::Position;
use crate::values::Question;
use serde_json::{Value, json};
use std::ops::ControlFlow;

impl OpenRecording {
    /// Answers `hits`: a page of the executions of some code in the whole run. `next` is the
    /// position of the first one of the next page; null at the last page.
    pub(super) fn hits(
        &mut self,
        host: &dyn Host,
        wanted: &requests::Hits,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        let print = Question::parse(&wanted.print).map_err(|error| error.to_string())?;
        let texts: Vec<String> = print.texts().map(str::to_owned).collect();
        let from = wanted.from.as_deref().map(|from| self.asked.position_of(from)).transpose();
        let from = from.map_err(|error| error.to_string())?.unwrap_or(0);
        let (limit, is_exact) = (page_rows(wanted.limit), self.asked.is_exact());
        let question = HitsQuestion { at: &wanted.at, print: &print, from };
        let (mut rows, mut next) = (Vec::new(), None);
        let mut sink = |hit: Hit| {
            if rows.len() == limit {
                next = Some(Position::text(hit.position, is_exact));
                return Ok(ControlFlow::Break(()));
            }
            rows.push(host.hit(&hit, &texts, is_exact));
            Ok(ControlFlow::Continue(()))
        };
        let answered = self.asked.hits(&question, &mut sink, &|_| {}, interrupted);
        answered.map_err(|error| error.to_string())?;
        Ok(json!({"rows": rows, "next": next}))
    }

    /// Answers `calls`: a page of calls of the whole run. `next` is the number of calls before the
    /// next page; null at the last page.
    pub(super) fn calls(
        &mut self,
        host: &dyn Host,
        wanted: &requests::Calls,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        let question = CallsQuestion {
            functions: &wanted.functions,
            arguments: wanted.arguments,
            returns: wanted.results,
            duration: wanted.durations,
            in_program_file: wanted.own,
        };
        self.asked.check_calls(&question).map_err(|error| error.to_string())?;
        let (limit, is_exact) = (page_rows(wanted.limit), self.asked.is_exact());
        let end = wanted.skip.saturating_add(limit);
        let (mut rows, mut count, mut has_more) = (Vec::new(), 0, false);
        let mut sink = |call: Call| {
            if count == end {
                has_more = true;
                return Ok(ControlFlow::Break(()));
            }
            if count >= wanted.skip {
                rows.push(host.call(&call, &question, is_exact));
            }
            count += 1;
            Ok(ControlFlow::Continue(()))
        };
        let answered = self.asked.calls(question, &mut sink, &|_| {}, interrupted);
        answered.map_err(|error| error.to_string())?;
        let next = has_more.then_some(end);
        Ok(json!({"rows": rows, "next": next}))
    }

    /// Answers `origin`: the steps from a value back to its origin, latest first. `has_more` is
    /// true if the page does not hold all of them.
    pub(super) fn origin(
        &mut self,
        host: &dyn Host,
        wanted: &requests::Origin,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        let text = wanted.expression.as_str();
        let question = Question::parse(text).map_err(|error| error.to_string())?;
        let at = wanted.position.as_deref().map(|at| self.asked.position_of(at)).transpose();
        let at = at.map_err(|error| error.to_string())?;
        if at.is_some() && wanted.frame.is_some() {
            return Err("`frame` is of the current position: go there first".to_owned());
        }
        // At the end of the run there is no next instruction, so no position to name.
        let here = self.run().position().filter(|here| here.at < here.total).map(|here| here.at);
        let stopped = self.session.last_stop().thread;
        let activation = match wanted.frame {
            Some(frame) => Some(self.activation_of(frame)?),
            // A register alone is that of the innermost frame.
            None => text.starts_with('$').then_some(0),
        };
        // Without `position`, that is the current one, or the end of the run (`None`), and the
        // thread is the one that stopped; at a named position, the one that executes there.
        let origin = OriginQuestion {
            value: FollowedValue::Expression { text: &question, frame: activation },
            at: at.or(here),
            thread: at.is_none().then_some(stopped),
        };
        let (limit, is_exact) = (page_rows(wanted.limit), self.asked.is_exact());
        let (mut rows, mut has_more) = (Vec::<Value>::new(), false);
        let mut sink = |step: OriginStep| {
            if rows.len() == limit {
                has_more = true;
                return Ok(ControlFlow::Break(()));
            }
            rows.push(host.origin_step(&step, text, is_exact));
            Ok(ControlFlow::Continue(()))
        };
        let answered = self.asked.origin(&origin, &mut sink, interrupted);
        answered.map_err(|error| error.to_string())?;
        Ok(json!({"rows": rows, "has_more": has_more}))
    }

    /// Returns the index of the activation whose innermost frame is number `frame`, of the thread
    /// that stopped. Fails for the other frames of an activation, which have no index.
    fn activation_of(&self, frame: usize) -> Result<usize, String> {
        let activations = self.activations(self.session.last_stop().thread);
        let found = activations.iter().position(|one| one.first_frame == frame);
        found.ok_or_else(|| {
            format!("there is no frame {frame}, or another function is inlined into it")
        })
    }
}
