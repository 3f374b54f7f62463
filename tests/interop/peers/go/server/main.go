// Command server is a scripted agent on the official Go SDK, for our client to talk to.
//
//	server PORT
//
// PORT 0 picks a free one. Once it listens on 127.0.0.1 it prints one line, {"url": "http://127.0.0.1:PORT"}.
// It speaks 1.0 and 0.3, each over JSON-RPC, HTTP+JSON and, on a port of its own, gRPC. What it does is in agent.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"google.golang.org/grpc"
)

const (
	name = "go-peer"
	// The 0.3 handlers know other methods than the 1.0 ones, so JSON-RPC needs an address of its own for them.
	// HTTP+JSON needs none: all paths of 0.3 begin with /v1.
	rpcPath    = "/rpc"
	oldRPCPath = "/rpc03"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: server PORT")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(port string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	grpcListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	card := cardOf(base, grpcListener.Addr().String())
	handler := handlerOf(card)
	ended := make(chan error, 1)
	go func() { ended <- grpcServerOf(handler).Serve(grpcListener) }()
	go func() { ended <- http.Serve(listener, routesOf(card, handler)) }()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": base}); err != nil {
		return err
	}
	return <-ended
}

func handlerOf(card *a2a.AgentCard) a2asrv.RequestHandler {
	extended := *card
	extended.Name = name + "-extended"

	return a2asrv.NewHandler(
		scripted{},
		a2asrv.WithLogger(slog.New(slog.DiscardHandler)), // whoever starts this may never read its stderr
		a2asrv.WithCapabilityChecks(&card.Capabilities),
		a2asrv.WithCallInterceptors(everybody{}),
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), newLoopbackSender()),
		a2asrv.WithExtendedAgentCard(&extended),
	)
}

// grpcServerOf serves the packages of both versions on one port.
func grpcServerOf(handler a2asrv.RequestHandler) *grpc.Server {
	server := grpc.NewServer()
	grpcv1.NewHandler(handler).RegisterWith(server)
	grpcv0.NewHandler(handler).RegisterWith(server)
	return server
}

func routesOf(card *a2a.AgentCard, handler a2asrv.RequestHandler) http.Handler {
	routes := http.NewServeMux()
	routes.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
	routes.Handle(rpcPath, a2asrv.NewJSONRPCHandler(handler))
	routes.Handle(oldRPCPath, a2av0.NewJSONRPCHandler(handler))
	routes.Handle("/v1/", a2av0.NewRESTHandler(handler))
	routes.Handle("/", a2asrv.NewRESTHandler(handler))
	return routes
}

func cardOf(base, grpcAddress string) *a2a.AgentCard {
	var skills []a2a.AgentSkill
	for _, each := range []string{"echo", "stream", "ask", "fail", "message", "slow", "data", "file"} {
		skills = append(skills, a2a.AgentSkill{
			ID: each, Name: each, Description: "Chosen by the first word: " + each, Tags: []string{"interop"},
		})
	}
	return &a2a.AgentCard{
		Name:        name,
		Description: "Behaves in every way a server may",
		Version:     "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface(base+rpcPath, a2a.TransportProtocolJSONRPC),
			a2a.NewAgentInterface(base, a2a.TransportProtocolHTTPJSON),
			a2a.NewAgentInterface(grpcAddress, a2a.TransportProtocolGRPC),
			{URL: base + oldRPCPath, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2av0.Version},
			{URL: base, ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: a2av0.Version},
			{URL: grpcAddress, ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: a2av0.Version},
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true, PushNotifications: true, ExtendedAgentCard: true},
		DefaultInputModes:  []string{"text/plain"},
		DefaultOutputModes: []string{"text/plain", "application/json", "application/octet-stream"},
		Skills:             skills,
	}
}

// everybody gives each caller the same name: the SDK's store lists no tasks for callers without one.
type everybody struct {
	a2asrv.PassthroughCallInterceptor
}

func (everybody) Before(
	ctx context.Context, call *a2asrv.CallContext, _ *a2asrv.Request,
) (context.Context, any, error) {
	call.User = a2asrv.NewAuthenticatedUser("everybody", nil)
	return ctx, nil, nil
}

// loopbackSender lifts the SDK's ban on loopback, and bans everything else: a test never leaves this machine.
type loopbackSender struct {
	inner push.Sender
}

func newLoopbackSender() loopbackSender {
	return loopbackSender{push.NewHTTPPushSender(anyAddress())}
}

func (s loopbackSender) SendPush(ctx context.Context, config *a2a.PushConfig, event a2a.Event) error {
	target, err := url.Parse(config.URL)
	if err != nil {
		return err
	}
	if address := net.ParseIP(target.Hostname()); address == nil || !address.IsLoopback() {
		return nil
	}
	return s.inner.SendPush(ctx, config, event)
}
