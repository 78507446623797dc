//! `contraflow/hits`: the executions of a line, a function or an instruction over the whole
//! history, with the values of expressions there.
//!
//! There are two searches. The session searches backwards, from the newest hit on, and gdb visits
//! the hits to read values. If the client gave a token (a name for the search), hits are sent as
//! they are found, and a thread for questions searches for most of them: once through the
//! recording, from its beginning forwards. A request that this thread cannot answer returns to the
//! session.

use super::adapter::Adapter;
use super::here::share;
use super::inbox::{Input, InputSender};
use super::protocol::{Client, Fault, Request};
use super::questions::{FoundQuestion, Question};
use crate::ask::{Asked, Hit, HitsQuestion};
use crate::common::Addr;
use crate::gdb::position_text;
use crate::session::{
    AnySession, Direction, Execution, ExecutionSearch, Found, Position, Run, Search, SearchEnd,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const EVENT: &str = "contraflow/hitsFound";
/// The default number of hits.
const HITS: usize = 100;
const HITS_LIMIT: usize = 1_000_000;
/// The minimum time between two events with hits.
const EVENT_PERIOD: Duration = Duration::from_millis(50);
/// The number of hits that the first search for hits with values finds; each later one finds twice
/// as many.
const FIRST_SEARCH_HITS: usize = 10;
const SEARCH_HITS_LIMIT: usize = 1000;
/// The number of newest hits that the session searches before a thread searches for the others, and
/// the time limit for this.
const NEWEST_HITS: usize = 10;
const NEWEST_PATIENCE: Duration = Duration::from_millis(200);
/// The number of hits that gdb visits in one request.
const VISITS_A_REQUEST: usize = 20;

/// The arguments of `contraflow/hits` (docs/ide.md, "Requests of our own").
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Arguments {
    source: Value,
    line: Option<i64>,
    function: Option<String>,
    address: Option<String>,
    from: Option<String>,
    limit: Option<usize>,
    values: Vec<String>,
    token: Value,
    /// The number of hits that the client has of this search already.
    sent: usize,
}

/// A search for hits, with its state.
pub(super) struct HitsSearch {
    /// The code, as `cf-find` takes it.
    code: String,
    /// The upper end of the search: the position before which hits are wanted; `None` for the end
    /// of the history. It moves down as the session finds hits.
    from: Option<String>,
    /// The expressions to evaluate at each hit.
    values: Vec<String>,
    /// The number of hits that are still wanted.
    wanted_count: usize,
    /// The client's name for the search, if the hits are to be sent as they are found; null if not.
    token: Value,
    /// The number of hits found so far, with those that the client had before.
    count: usize,
    /// The hits that are not sent yet; without a token, all hits, for the answer.
    unsent: Vec<Value>,
    /// The time of the last event with hits.
    last_sent: Option<Instant>,
    /// The time limit for a search in the session; `None` for no limit.
    time_limit: Option<Duration>,
}

impl HitsSearch {
    /// Adds hits that were found to those that are not sent yet, and counts them.
    fn add(&mut self, hits: Vec<Value>) {
        self.count += hits.len();
        self.unsent.extend(hits);
    }

    /// Sets the upper end of the search to the oldest hit; without one, leaves it.
    fn continue_before(&mut self, oldest: Option<&Value>) {
        if let Some(oldest) = oldest {
            self.from = oldest["position"].as_str().map(str::to_owned);
        }
    }

    /// Sends the hits that are not sent yet, if there are any and the client gave a token. Within
    /// [`EVENT_PERIOD`] of the last event, does so only if `now` is set.
    fn send(&mut self, client: &mut Client, now: bool) {
        if let Some(body) = self.event(now) {
            client.event(EVENT, body);
        }
    }

    /// Returns the body of the event for [`Self::send`], and takes its hits as sent; `None` if
    /// there is nothing to send, or it is too early.
    fn event(&mut self, now: bool) -> Option<Value> {
        let is_early = self.last_sent.is_some_and(|sent| sent.elapsed() < EVENT_PERIOD);
        if self.token.is_null() || self.unsent.is_empty() || is_early && !now {
            return None;
        }
        self.last_sent = Some(Instant::now());
        let hits = std::mem::take(&mut self.unsent);
        Some(json!({"token": self.token, "count": self.count, "hits": hits}))
    }
}

impl TryFrom<Arguments> for HitsSearch {
    type Error = Fault;

    fn try_from(arguments: Arguments) -> Result<Self, Fault> {
        let path = arguments.source["path"].as_str().or_else(|| arguments.source.as_str());
        let code = match (path, arguments.line, &arguments.function, &arguments.address) {
            (Some(path), Some(line), ..) => format!("{path}:{line}"),
            (.., Some(function), _) => function.clone(),
            (.., Some(address)) => format!("*{address}"),
            _ => return Err(Fault::new("give `source` and `line`, `function` or `address`")),
        };
        let wanted_count = arguments.limit.unwrap_or(HITS).clamp(1, HITS_LIMIT);
        let Arguments { from, values, token, sent: count, .. } = arguments;
        let unsent = Vec::new();
        Ok(Self {
            code,
            from,
            values,
            wanted_count,
            token,
            count,
            unsent,
            last_sent: None,
            time_limit: None,
        })
    }
}

impl HitsSearch {
    /// Returns the `arguments` of the request, changed for the session to continue this search:
    /// hits that were found are not searched again.
    pub(super) fn remaining_arguments(&self, arguments: &Value) -> Value {
        let mut rest = arguments.clone();
        rest["from"] = json!(self.from);
        (rest["limit"], rest["sent"]) = (self.wanted_count.into(), self.count.into());
        rest
    }

    /// Returns the answer to the request, with the hits that were not sent as events. Its total is
    /// null if there are more hits.
    fn answer(&self, end: SearchEnd) -> Value {
        let has_more = end == SearchEnd::HasMore;
        let total = (!has_more).then_some(self.count);
        json!({"total": total, "count": self.count, "hasMore": has_more, "hits": self.unsent})
    }
}

impl Adapter<'_> {
    /// Answers `contraflow/hits` by the session. Fails if there is no such code, or if the client
    /// cancels.
    pub(super) fn hits(&mut self, request: &Request) -> Result<Value, Fault> {
        let mut hits = HitsSearch::try_from(request.arguments::<Arguments>()?)?;
        let end = self.search_session(&mut hits)?;
        Ok(hits.answer(end))
    }

    /// Searches for all wanted hits in the session, backwards, and sends them if there is a token.
    fn search_session(&mut self, hits: &mut HitsSearch) -> Result<SearchEnd, Fault> {
        let end = if hits.values.is_empty() {
            let wanted = hits.wanted_count;
            self.search_some(hits, wanted, true)
        } else {
            self.search_with_values(hits)
        };
        // Hits that were found before an error or a request to cancel are sent as well.
        hits.send(&mut self.client, true);
        end
    }

    /// Returns the search of a request as a question for a thread, if the request has a token and a
    /// thread can evaluate the expressions. For a line or an address, the session first searches
    /// for the newest hits, which the thread would find last; the request is answered if these are
    /// all.
    pub(super) fn begin_hits(&mut self, request: &Request) -> Result<FoundQuestion, Fault> {
        let arguments: Arguments = request.arguments()?;
        if arguments.token.is_null() {
            return Ok(FoundQuestion::None);
        }
        // Only gdb knows the meaning of other expressions.
        if !matches!(Asked::parse_expressions(&arguments.values), Ok(Some(_))) {
            return Ok(FoundQuestion::None);
        }
        let is_function = arguments.function.is_some() && arguments.line.is_none();
        let mut hits = HitsSearch::try_from(arguments)?;
        if !is_function {
            let wanted_count = hits.wanted_count;
            (hits.wanted_count, hits.time_limit) =
                (wanted_count.min(NEWEST_HITS), Some(NEWEST_PATIENCE));
            let end = self.search_session(&mut hits)?;
            hits.time_limit = None;
            hits.wanted_count = wanted_count.saturating_sub(hits.count);
            if end != SearchEnd::HasMore || hits.wanted_count == 0 {
                return Ok(FoundQuestion::Answered(hits.answer(end)));
            }
        }
        Ok(FoundQuestion::Question(Question::Hits(hits)))
    }

    /// Searches for hits in the session and visits them with gdb to read values, some at a time.
    /// Ends after the first part if there is a time limit.
    fn search_with_values(&mut self, hits: &mut HitsSearch) -> Result<SearchEnd, Fault> {
        let expressions = hits.values.clone();
        let mut at_a_time = FIRST_SEARCH_HITS;
        loop {
            let known = hits.unsent.len();
            let end = self.search_some(hits, at_a_time.min(hits.wanted_count), false)?;
            // The hits are added again once they have their values.
            let mut fresh = hits.unsent.split_off(known);
            hits.count -= fresh.len();
            hits.wanted_count -= fresh.len();
            hits.continue_before(fresh.last());
            for some in fresh.chunks_mut(VISITS_A_REQUEST) {
                self.add_values(some, &expressions)?;
                hits.add(some.to_vec());
                hits.send(&mut self.client, false);
            }
            if end != SearchEnd::HasMore || hits.wanted_count == 0 || hits.time_limit.is_some() {
                return Ok(end);
            }
            at_a_time = (2 * at_a_time).min(SEARCH_HITS_LIMIT);
        }
    }

    /// Visits hits with gdb to add the values of expressions there. Then gdb returns to the
    /// position at which it was.
    fn add_values(&mut self, hits: &mut [Value], expressions: &[String]) -> Result<(), Fault> {
        let positions: Vec<Value> = hits.iter().map(|hit| hit["position"].clone()).collect();
        let arguments = json!({"positions": positions, "expressions": expressions});
        let answer = self.ask_module("visit", arguments)?;
        let values = answer["values"].as_array().into_iter().flatten();
        for (hit, values) in hits.iter_mut().zip(values) {
            hit["values"] = values.clone();
        }
        Ok(())
    }

    /// Searches backwards in the session for up to `count` hits before `from`, and adds them. With
    /// `sends`, sends them as they are found. After the time limit, returns [`SearchEnd::HasMore`];
    /// fails if the client cancels. The caller counts `wanted_count` down.
    fn search_some(
        &mut self,
        hits: &mut HitsSearch,
        count: usize,
        sends: bool,
    ) -> Result<SearchEnd, Fault> {
        let (sender, fresh): (_, Receiver<Value>) = channel();
        let (code, from) = (hits.code.clone(), hits.from.clone());
        let time_limit = hits.time_limit;
        let question = move |session: &mut dyn AnySession, cancelled: &dyn Fn() -> bool| {
            let begun = Instant::now();
            let interrupted =
                || cancelled() || time_limit.is_some_and(|time_limit| begun.elapsed() > time_limit);
            let run = session.run();
            let from = from.map(|from| position(&from, run)).transpose()?;
            let end = if run.is_exact() {
                exact_hits(session, &code, (from, count), &sender, &interrupted)?
            } else {
                path_hits(run, &code, (from, count), &sender, &interrupted)?
            };
            // After the time limit, a thread searches for the other hits.
            let is_late = end == SearchEnd::Interrupted && !cancelled();
            Ok::<_, Fault>(if is_late { SearchEnd::HasMore } else { end })
        };
        let take = |hits: &mut HitsSearch| {
            let found: Vec<Value> = fresh.try_iter().collect();
            hits.continue_before(found.last());
            hits.add(found);
        };
        let end = self.ask_session_watched(question, &mut |client| {
            take(hits);
            if sends {
                hits.send(client, false);
            }
        })?;
        take(hits);
        match end? {
            SearchEnd::Interrupted => Err(Fault::cancelled()),
            end => Ok(end),
        }
    }
}

/// Parses the position before which the client wants hits. Fails if the text is no position.
fn position(text: &str, run: &dyn Run) -> Result<u64, Fault> {
    let position = Position::parse(text, run.is_exact());
    position.ok_or_else(|| Fault::new(format!("from: {text:?} is no position")))
}

fn no_code(code: &str) -> Fault {
    Fault::new(format!("there is no code of {code}"))
}

/// Searches an exact recording backwards from position `from` (`None` for its end), for up to
/// `count` hits, and sends each. Fails if there is no such code.
fn exact_hits(
    session: &mut dyn AnySession,
    code: &str,
    (from, count): (Option<u64>, usize),
    sender: &Sender<Value>,
    interrupted: &dyn Fn() -> bool,
) -> Result<SearchEnd, Fault> {
    let run = session.run();
    let addrs: BTreeSet<Addr> = run.addresses_of(code).into_iter().collect();
    if addrs.is_empty() {
        return Err(no_code(code));
    }
    let total = run.position().map_or(0, |position| position.total);
    let mut sink = |run: &dyn Run, execution: Execution| {
        let caller =
            execution.returns_to.and_then(|next| run.location_of(Addr(next.0.wrapping_sub(1))));
        let mut hit = json!({
            "position": position_text(execution.at, true),
            "share": share(execution.at, total),
            "thread": execution.tid.0,
            "address": execution.pc.to_string(),
            "place": run.location_of(execution.pc).map(|place| place.to_string()),
        });
        if let Some(caller) = caller {
            hit["calledAt"] = caller.to_string().into();
        }
        // If the receiver is gone, the search was interrupted.
        let _ = sender.send(hit);
    };
    let search = ExecutionSearch { addrs: &addrs, from, count };
    let end = session.run_mut().find_executions(&search, &mut sink, interrupted);
    end.map_err(|error| Fault::new(error.to_string()))
}

/// Searches the path backwards from position `from` (`None` for its end), for up to `count` hits,
/// and sends each. Fails if there is no such code, or no history yet.
fn path_hits(
    run: &dyn Run,
    code: &str,
    (from, count): (Option<u64>, usize),
    sender: &Sender<Value>,
    interrupted: &dyn Fn() -> bool,
) -> Result<SearchEnd, Fault> {
    let history = run.path_history().ok_or_else(|| Fault::new("there is no history yet"))?;
    let addrs: BTreeSet<Addr> = history.addresses_of(code).into_iter().collect();
    if addrs.is_empty() {
        return Err(no_code(code));
    }
    let total = history.total();
    let (mut from, mut found) = (from.map_or(total, |from| from.min(total)), 0);
    loop {
        let search = Search::beyond(from, 0, Direction::Backward, None, &addrs);
        let at = match history.find(&search, interrupted) {
            Found::At(_) if found == count => return Ok(SearchEnd::HasMore),
            Found::At(at) => at,
            Found::Interrupted(_) => return Ok(SearchEnd::Interrupted),
            Found::Nothing => return Ok(SearchEnd::Complete),
        };
        if interrupted() {
            return Ok(SearchEnd::Interrupted);
        }
        (from, found) = (at, found + 1);
        let thread = history.running_at(at);
        let pc = thread.and_then(|tid| history.pc(tid, at));
        // If the receiver is gone, the search was interrupted.
        let _ = sender.send(json!({
            "position": position_text(at, false),
            "share": share(at, total),
            "thread": thread.map(|tid| tid.0),
            "timeNs": history.time_ns(at),
            "address": pc.map(|pc| pc.to_string()),
            "place": pc.and_then(|pc| history.location_of(pc)).map(|place| place.to_string()),
        }));
    }
}

impl HitsSearch {
    /// Searches a recording from its beginning up to `self.from`, for the hits that are still
    /// wanted, and sends them to the adapter as they are found. Runs in a thread for questions.
    /// Returns `None` if the session has to answer instead: there is no such code, or only gdb can
    /// evaluate the expressions.
    pub(super) fn search_recording(
        &mut self,
        asked: &mut Asked,
        answers: &InputSender,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Result<Value, Fault>> {
        let print = Asked::parse_expressions(&self.values).ok()??;
        let question = HitsQuestion { at: &self.code.clone(), print: &print, from: 0 };
        asked.check_hits(&question).ok()?;
        let until = self.from.as_deref().map(|until| asked.position_of(until)).transpose();
        let until = match until {
            Ok(until) => until.unwrap_or(u64::MAX),
            Err(error) => return Some(Err(Fault::new(error.to_string()))),
        };
        let (is_exact, total) = (asked.is_exact(), asked.last_position());
        let mut end = SearchEnd::Complete;
        let mut sink = |hit: Hit| {
            if hit.position >= until || self.wanted_count == 0 {
                end = if hit.position >= until { end } else { SearchEnd::HasMore };
                return Ok(ControlFlow::Break(()));
            }
            self.wanted_count -= 1;
            self.add(vec![hit_json(&hit, is_exact, total)]);
            self.send_by(answers, false);
            Ok(ControlFlow::Continue(()))
        };
        let found = asked.hits(&question, &mut sink, &|_| {}, is_cancelled);
        self.send_by(answers, true);
        Some(match found {
            Err(error) => Err(Fault::new(error.to_string())),
            Ok(()) if is_cancelled() => Err(Fault::cancelled()),
            Ok(()) => Ok(self.answer(end)),
        })
    }

    /// Sends the hits like [`Self::send`], with the same `now`, by way of the adapter's inbox.
    fn send_by(&mut self, answers: &InputSender, now: bool) {
        if let Some(body) = self.event(now) {
            // If the receiver is gone, the session is over.
            let _ = answers.send(Input::Event(EVENT, body));
        }
    }
}

/// Returns a hit in the form of the answer. `is_exact` is true for an exact recording, whose
/// positions have another form; `total` is the last position.
fn hit_json(hit: &Hit, is_exact: bool, total: u64) -> Value {
    let mut json = json!({
        "position": position_text(hit.position, is_exact),
        "share": share(hit.position, total).min(1.0),
        "thread": hit.tid.0,
        "address": hit.addr.to_string(),
        "place": hit.place.to_string(),
    });
    if let Some(caller) = &hit.caller {
        json["calledAt"] = caller.to_string().into();
    }
    if !hit.values.is_empty() {
        json["values"] = hit.values.iter().map(ToString::to_string).collect();
    }
    json
}
