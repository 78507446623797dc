//! `contraflow/hits`: the executions of a line, a function or an instruction over the whole
//! history, with the values of expressions there. The session searches backwards, from the newest
//! hit on. With a token, hits are sent as they are found, and a thread searches for most of them:
//! once through the recording, from its beginning forwards.

use super::adapter::Adapter;
use super::here::share;
use super::inbox::Input;
use super::protocol::{Client, Fault, Request};
use super::questions::{Asking, Question};
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
pub(super) struct Hits {
    /// The code, as `cf-find` takes it.
    what: String,
    /// The upper end of the search: the position before which hits are wanted; `None` for the end
    /// of the history. It moves down as the session finds hits.
    from: Option<String>,
    /// The expressions to evaluate at each hit.
    values: Vec<String>,
    /// The number of hits that are still wanted.
    left: usize,
    /// The client's name for the search, if the hits are to be sent as they are found; null if not.
    token: Value,
    /// The number of hits found so far, with those that the client had before.
    count: usize,
    /// The hits that are not sent yet.
    found: Vec<Value>,
    /// The time of the last event with hits.
    sent: Option<Instant>,
    /// The time limit for a search in the session; `None` for no limit.
    patience: Option<Duration>,
}

impl Hits {
    fn add(&mut self, hits: Vec<Value>) {
        self.count += hits.len();
        self.found.extend(hits);
    }

    /// Lets the search continue before the oldest hit.
    fn go_on_before(&mut self, oldest: Option<&Value>) {
        if let Some(oldest) = oldest {
            self.from = oldest["position"].as_str().map(str::to_owned);
        }
    }

    /// Sends the hits that are not sent yet, if there are any and the client gave a token. Soon
    /// after the last event, does so only if `now` is set.
    fn send(&mut self, client: &mut Client, now: bool) {
        if let Some(body) = self.event(now) {
            client.event(EVENT, body);
        }
    }

    /// Returns the event for [`Self::send`], and takes its hits as sent; `None` if there is nothing
    /// to send.
    fn event(&mut self, now: bool) -> Option<Value> {
        let is_early = self.sent.is_some_and(|sent| sent.elapsed() < EVENT_PERIOD);
        if self.token.is_null() || self.found.is_empty() || is_early && !now {
            return None;
        }
        self.sent = Some(Instant::now());
        let hits = std::mem::take(&mut self.found);
        Some(json!({"token": self.token, "count": self.count, "hits": hits}))
    }
}

impl TryFrom<Arguments> for Hits {
    type Error = Fault;

    fn try_from(arguments: Arguments) -> Result<Self, Fault> {
        let path = arguments.source["path"].as_str().or_else(|| arguments.source.as_str());
        let what = match (path, arguments.line, &arguments.function, &arguments.address) {
            (Some(path), Some(line), ..) => format!("{path}:{line}"),
            (.., Some(function), _) => function.clone(),
            (.., Some(address)) => format!("*{address}"),
            _ => return Err(Fault::new("give `source` and `line`, `function` or `address`")),
        };
        let left = arguments.limit.unwrap_or(HITS).clamp(1, HITS_LIMIT);
        let Arguments { from, values, token, sent: count, .. } = arguments;
        let found = Vec::new();
        Ok(Self { what, from, values, left, token, count, found, sent: None, patience: None })
    }
}

impl Hits {
    /// Returns the arguments with which the session continues the search.
    pub(super) fn rest(&self, arguments: &Value) -> Value {
        let mut rest = arguments.clone();
        rest["from"] = json!(self.from);
        (rest["limit"], rest["sent"]) = (self.left.into(), self.count.into());
        rest
    }

    fn answer(&self, end: SearchEnd) -> Value {
        let has_more = end == SearchEnd::HasMore;
        let total = (!has_more).then_some(self.count);
        json!({"total": total, "count": self.count, "hasMore": has_more, "hits": self.found})
    }
}

impl Adapter<'_> {
    pub(super) fn hits(&mut self, request: &Request) -> Result<Value, Fault> {
        let mut hits = Hits::try_from(request.arguments::<Arguments>()?)?;
        let end = self.search_all(&mut hits)?;
        Ok(hits.answer(end))
    }

    /// Searches for all wanted hits in the session.
    fn search_all(&mut self, hits: &mut Hits) -> Result<SearchEnd, Fault> {
        let end = if hits.values.is_empty() {
            let wanted = hits.left;
            self.search(hits, wanted, true)
        } else {
            self.search_with_values(hits)
        };
        // Hits that were found before an error or a request to cancel are sent as well.
        hits.send(&mut self.client, true);
        end
    }

    /// Begins a search that sends its hits as they are found, if the request has a token and a
    /// thread can evaluate the expressions. For a line or an address, the session first searches
    /// for the newest hits, which the thread would find last; the search is over if these are all.
    pub(super) fn begin_hits(&mut self, request: &Request) -> Result<Asking, Fault> {
        let arguments: Arguments = request.arguments()?;
        if arguments.token.is_null() {
            return Ok(Asking::None);
        }
        // Only gdb knows the meaning of other expressions.
        if !matches!(Asked::parse_expressions(&arguments.values), Ok(Some(_))) {
            return Ok(Asking::None);
        }
        let is_function = arguments.function.is_some() && arguments.line.is_none();
        let mut hits = Hits::try_from(arguments)?;
        if !is_function {
            let left = hits.left;
            (hits.left, hits.patience) = (left.min(NEWEST_HITS), Some(NEWEST_PATIENCE));
            let end = self.search_all(&mut hits)?;
            hits.patience = None;
            hits.left = left.saturating_sub(hits.count);
            if end != SearchEnd::HasMore || hits.left == 0 {
                return Ok(Asking::Answered(hits.answer(end)));
            }
        }
        Ok(Asking::Question(Question::Hits(hits)))
    }

    /// Searches for hits and visits them to read values, some at a time.
    fn search_with_values(&mut self, hits: &mut Hits) -> Result<SearchEnd, Fault> {
        let expressions = hits.values.clone();
        let mut at_a_time = FIRST_SEARCH_HITS;
        loop {
            let known = hits.found.len();
            let end = self.search(hits, at_a_time.min(hits.left), false)?;
            // The hits are added again once they have their values.
            let mut fresh = hits.found.split_off(known);
            hits.count -= fresh.len();
            hits.left -= fresh.len();
            hits.go_on_before(fresh.last());
            for some in fresh.chunks_mut(VISITS_A_REQUEST) {
                self.add_values(some, &expressions)?;
                hits.add(some.to_vec());
                hits.send(&mut self.client, false);
            }
            if end != SearchEnd::HasMore || hits.left == 0 || hits.patience.is_some() {
                return Ok(end);
            }
            at_a_time = (2 * at_a_time).min(SEARCH_HITS_LIMIT);
        }
    }

    /// Visits hits with gdb to add the values of expressions there. The position stays.
    fn add_values(&mut self, hits: &mut [Value], expressions: &[String]) -> Result<(), Fault> {
        let positions: Vec<Value> = hits.iter().map(|hit| hit["position"].clone()).collect();
        let arguments = json!({"positions": positions, "expressions": expressions});
        let answer = self.look("visit", arguments)?;
        let values = answer["values"].as_array().into_iter().flatten();
        for (hit, values) in hits.iter_mut().zip(values) {
            hit["values"] = values.clone();
        }
        Ok(())
    }

    /// Searches backwards in the session for up to `count` hits before `from`, and adds them. With
    /// `sends`, sends them as they are found. The caller counts `left` down.
    fn search(&mut self, hits: &mut Hits, count: usize, sends: bool) -> Result<SearchEnd, Fault> {
        let (sender, fresh): (_, Receiver<Value>) = channel();
        let (what, from) = (hits.what.clone(), hits.from.clone());
        let patience = hits.patience;
        let question = move |session: &mut dyn AnySession, cancelled: &dyn Fn() -> bool| {
            let begun = Instant::now();
            let interrupted =
                || cancelled() || patience.is_some_and(|patience| begun.elapsed() > patience);
            let run = session.run();
            let from = from.map(|from| position(&from, run)).transpose()?;
            let end = if run.is_exact() {
                exact_hits(session, &what, (from, count), &sender, &interrupted)?
            } else {
                path_hits(run, &what, (from, count), &sender, &interrupted)?
            };
            // After the time limit, a thread searches for the other hits.
            let is_late = end == SearchEnd::Interrupted && !cancelled();
            Ok::<_, Fault>(if is_late { SearchEnd::HasMore } else { end })
        };
        let take = |hits: &mut Hits| {
            let found: Vec<Value> = fresh.try_iter().collect();
            hits.go_on_before(found.last());
            hits.add(found);
        };
        let end = self.ask_watched(question, &mut |client| {
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

fn position(text: &str, run: &dyn Run) -> Result<u64, Fault> {
    let position = Position::parse(text, run.is_exact());
    position.ok_or_else(|| Fault::new(format!("from: {text:?} is no position")))
}

fn no_code(what: &str) -> Fault {
    Fault::new(format!("there is no code of {what}"))
}

/// Searches an exact recording backwards from a position, for up to `count` hits.
fn exact_hits(
    session: &mut dyn AnySession,
    what: &str,
    (from, count): (Option<u64>, usize),
    sender: &Sender<Value>,
    interrupted: &dyn Fn() -> bool,
) -> Result<SearchEnd, Fault> {
    let run = session.run();
    let addrs: BTreeSet<Addr> = run.addresses_of(what).into_iter().collect();
    if addrs.is_empty() {
        return Err(no_code(what));
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

/// Searches the path backwards from a position, for up to `count` hits.
fn path_hits(
    run: &dyn Run,
    what: &str,
    (from, count): (Option<u64>, usize),
    sender: &Sender<Value>,
    interrupted: &dyn Fn() -> bool,
) -> Result<SearchEnd, Fault> {
    let history = run.path_history().ok_or_else(|| Fault::new("there is no history yet"))?;
    let addrs: BTreeSet<Addr> = history.addresses_of(what).into_iter().collect();
    if addrs.is_empty() {
        return Err(no_code(what));
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

impl Hits {
    /// Searches a recording from its beginning up to `from`, for the hits that are still wanted,
    /// and sends them as they are found. Returns `None` if the session has to answer instead: there
    /// is no such code, or only gdb can evaluate the expressions.
    pub(super) fn search(
        &mut self,
        asked: &mut Asked,
        answers: &Sender<Input>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Result<Value, Fault>> {
        let print = Asked::parse_expressions(&self.values).ok()??;
        let question = HitsQuestion { at: &self.what.clone(), print: &print, from: 0 };
        asked.check_hits(&question).ok()?;
        let until = self.from.as_deref().map(|until| asked.position_of(until)).transpose();
        let until = match until {
            Ok(until) => until.unwrap_or(u64::MAX),
            Err(error) => return Some(Err(Fault::new(error.to_string()))),
        };
        let (is_exact, total) = (asked.is_exact(), asked.last_position());
        let mut end = SearchEnd::Complete;
        let mut sink = |hit: Hit| {
            if hit.position >= until || self.left == 0 {
                end = if hit.position >= until { end } else { SearchEnd::HasMore };
                return Ok(ControlFlow::Break(()));
            }
            self.left -= 1;
            self.add(vec![shown(&hit, is_exact, total)]);
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

    fn send_by(&mut self, answers: &Sender<Input>, now: bool) {
        if let Some(body) = self.event(now) {
            // If the receiver is gone, the session is over.
            let _ = answers.send(Input::Event(EVENT, body));
        }
    }
}

fn shown(hit: &Hit, is_exact: bool, total: u64) -> Value {
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
