//! The protocol, by the official SDK: initialization, the list of tools, and calls of them.

use super::answer::Answer;
use super::host::Host;
use super::tools::{INSTRUCTIONS, Request, tools};
use super::worker::{self, Job};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use tokio::runtime;
use tokio::sync::oneshot;

/// A server of one client.
struct Server {
    /// Sends requests to the thread of the recording.
    jobs: Sender<Job>,
    /// Set when the client is gone.
    is_over: Arc<AtomicBool>,
}

/// Serves the client at the standard input and output, until it leaves or the connection breaks,
/// which is no error. Then waits for the thread of the recording to end. Fails if no thread can be
/// started.
pub fn serve(host: impl Host + Send + 'static) -> io::Result<()> {
    let (jobs, worker) = worker::start(host)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let server = Server { jobs, is_over: Arc::clone(&is_over) };
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let running = server.serve((tokio::io::stdin(), tokio::io::stdout())).await;
        // A client that leaves before it has begun is no error, and neither is any other end.
        if let Ok(running) = running {
            let _ = running.waiting().await;
        }
    });
    is_over.store(true, Ordering::Relaxed);
    // A pending read of the standard input cannot be ended.
    runtime.shutdown_background();
    // A panic was printed when it happened.
    let _ = worker.join();
    Ok(())
}

impl Server {
    /// Sends a request to the thread of the recording, and waits for its answer.
    async fn answer(&self, request: Request, context: RequestContext<RoleServer>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let (is_over, cancelled) = (Arc::clone(&self.is_over), context.ct);
        let is_cancelled =
            Box::new(move || is_over.load(Ordering::Relaxed) || cancelled.is_cancelled());
        let sent = self.jobs.send(Job { request, is_cancelled, answer });
        let gone = "the thread of the recording has ended";
        sent.map_err(|_| gone.to_owned())?;
        answered.await.unwrap_or_else(|_| Err(gone.to_owned()))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let own = Implementation::new("contraflow", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(own)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // A model sees the errors of tools, and not those of the protocol.
        let answer = match Request::parse(&request.name, request.arguments) {
            Ok(request) => self.answer(request, context).await,
            Err(wrong) => Err(wrong),
        };
        let result = match answer {
            Ok(value) => CallToolResult::structured(value),
            Err(sentence) => CallToolResult::error(vec![ContentBlock::text(sentence)]),
        };
        Ok(result.into())
    }
}
