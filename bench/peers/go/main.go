// Command go serves the benchmark's agent on the official Go SDK, with the settings the SDK has by itself: over
// JSON-RPC, or over gRPC when its argument is `grpc`.
//
// It listens on a free port of 127.0.0.1, prints {"port": PORT}, and ends when its standard input does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	quiet := a2asrv.WithLogger(slog.New(slog.DiscardHandler)) // nobody else writes a log here
	handler := a2asrv.NewHandler(agent{}, quiet)
	port := listener.Addr().(*net.TCPAddr).Port
	if err := json.NewEncoder(os.Stdout).Encode(map[string]int{"port": port}); err != nil {
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, serve(listener, handler, slices.Contains(os.Args[1:], "grpc")))
	os.Exit(1)
}

func serve(listener net.Listener, handler a2asrv.RequestHandler, overGRPC bool) error {
	if overGRPC {
		server := grpc.NewServer()
		a2agrpc.NewHandler(handler).RegisterWith(server)
		return server.Serve(listener)
	}
	routes := http.NewServeMux()
	routes.Handle("/", a2asrv.NewJSONRPCHandler(handler))
	return http.Serve(listener, routes)
}

// agent echoes a text; asked for the skill `count`, it sends that many chunks.
type agent struct{}

func (agent) Execute(_ context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		send := func(event a2a.Event) bool { return yield(event, nil) }
		if !send(a2a.NewSubmittedTask(call, call.Message)) ||
			!send(a2a.NewStatusUpdateEvent(call, a2a.TaskStateWorking, nil)) {
			return
		}
		part := call.Message.Parts[0]
		if data, ok := part.Data().(map[string]any); ok {
			arguments := data["arguments"].(map[string]any)
			if !count(call, send, int(arguments["n"].(float64))) {
				return
			}
		} else if !send(a2a.NewArtifactEvent(call, a2a.NewTextPart(part.Text()))) {
			return
		}
		send(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil))
	}
}

func (agent) Cancel(_ context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
	}
}

func count(call *a2asrv.ExecutorContext, send func(a2a.Event) bool, chunks int) bool {
	id := a2a.NewArtifactID()
	for number := range chunks {
		chunk := a2a.NewArtifactUpdateEvent(call, id, a2a.NewTextPart(fmt.Sprintf("w%05d ", number)))
		chunk.Append = number > 0
		chunk.LastChunk = number == chunks-1
		if !send(chunk) {
			return false
		}
	}
	return true
}
