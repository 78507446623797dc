//! `contraflow dump`: each rung of the ladder as text, a line an item. Gaps go to stderr.

use super::arguments::What;
use super::disassembly::Disassembler;
use super::{Failure, arguments, source};
use crate::common::{Addr, Tid};
use crate::flow::{Insn, Span};
use crate::pt::Packets;
use crate::recording::{Reader, Store};
use crate::timeline::{Options, Timeline, Visit};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Dump) -> Result<ExitCode, Failure> {
    let (what, recording) = arguments.subject()?;
    let dir = Store::of_user().find(recording.as_deref())?;
    let reader = Reader::open(&dir)?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    if what == What::Sideband {
        for record in reader.sideband()? {
            writeln!(out, "{record}")?;
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let tids: Vec<Tid> = match arguments.thread {
        Some(tid) => vec![Tid(tid)],
        None => reader.threads()?,
    };
    if what == What::Packets {
        tids.iter().try_for_each(|tid| packets(&reader, *tid, &mut out))?;
    } else {
        let timeline = Timeline::open(reader, Options::default())?;
        for lost in timeline.lost_images() {
            eprintln!("contraflow: {lost}");
        }
        let mut disassembler = Disassembler::new(source::symbols(timeline.images()));
        let labels = tids.len() > 1 && !arguments.addresses;
        for tid in tids {
            if labels {
                writeln!(out, "thread {tid}")?;
            }
            let mut dump = Dump {
                out: &mut out,
                arguments,
                what,
                timeline: &timeline,
                disassembler: &mut disassembler,
            };
            dump.thread(tid)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn packets(reader: &Reader, tid: Tid, out: &mut impl Write) -> Result<(), Failure> {
    let trace = reader.trace(tid)?;
    for (offset, packet) in Packets::new(trace.as_ref()) {
        match packet {
            Ok(packet) => writeln!(out, "{offset:08x}  {packet:x?}")?,
            Err(error) => writeln!(out, "{offset:08x}  error: {error}")?,
        }
    }
    Ok(())
}

struct Dump<'a, W> {
    out: &'a mut W,
    arguments: &'a arguments::Dump,
    what: What,
    timeline: &'a Timeline,
    disassembler: &'a mut Disassembler,
}

impl<W: Write> Dump<'_, W> {
    fn thread(&mut self, tid: Tid) -> io::Result<()> {
        let from = self.arguments.from.unwrap_or(0);
        let timeline = self.timeline;
        let flow = timeline.visit(tid, from, &mut |visit| match self.item(&visit) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(None),
            Err(error) => ControlFlow::Break(Some(error)),
        });
        match flow {
            ControlFlow::Break(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Prints an item. False: the wanted range is over.
    fn item(&mut self, visit: &Visit<'_>) -> io::Result<bool> {
        let to = self.arguments.to.unwrap_or(u64::MAX);
        match visit {
            Visit::Block { index, .. } | Visit::Event { index, .. } if *index >= to => {
                return Ok(false);
            }
            Visit::Gap { gap, .. } => {
                self.out.flush()?;
                eprintln!("gap: {gap}");
            }
            Visit::Event { index, event } => {
                if matches!(self.what, What::Events) {
                    writeln!(self.out, "{index:>10}  {:08x}  {:x?}", event.offset, event.kind)?;
                }
            }
            Visit::Block { index, span, addrs, last, code } => match self.what {
                What::Blocks => self.block(*index, span, *last)?,
                What::Insns => {
                    let from = self.arguments.from.unwrap_or(0);
                    for (number, addr) in (*index..).zip(*addrs) {
                        if (from..to).contains(&number) {
                            self.insn(*addr, span, code)?;
                        }
                    }
                }
                _ => {}
            },
        }
        Ok(true)
    }

    fn block(&mut self, index: u64, span: &Span, last: Option<Insn>) -> io::Result<()> {
        let end = last.map_or(span.last, |insn| insn.next());
        writeln!(self.out, "{index:>10}  {:x}-{end:x}  {:>4}  {:?}", span.ip, span.insns, span.exit)
    }

    fn insn(
        &mut self,
        addr: Addr,
        span: &Span,
        code: &dyn Fn(Addr, &mut [u8]) -> usize,
    ) -> io::Result<()> {
        if self.arguments.addresses {
            return writeln!(self.out, "{addr:016x}");
        }
        let mut bytes = [0; 15];
        code(addr, &mut bytes);
        writeln!(self.out, "{}", self.disassembler.line(addr, span.mode, bytes))
    }
}
